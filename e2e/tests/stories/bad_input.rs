//! Bad input on the command line: each case gets a clear error and its exit code, and changes
//! nothing.

use muster_e2e::cluster::{TestCluster, TestClusterOptions};
use std::io::Write as _;
use std::net::TcpStream;
use std::process::{Output, Stdio};

const RIGHT: &str = "version: muster/v1
name: right
engine:
  model: { kind: mlp, hidden: [8] }
  dataset: { name: fashion-mnist }
  optimizer: { kind: sgd, learning_rate: 0.1 }
  batch: 64
stop: { steps: 10 }
";

#[tokio::test]
async fn bad_document_is_refused_with_field_value_and_remedy() {
    let mut cluster = TestCluster::start(TestClusterOptions { nodes: 1, slots: 1 }).await;
    for (change, named) in [
        ("surprise: 1", "surprise"),
        (
            "scale: { workers: { min: -1, max: 1 } }",
            "scale.workers.min",
        ),
        (
            "scale: { workers: { min: 3, max: 2 } }",
            "scale.workers.max",
        ),
        (
            "scale: { workers: { min: one, max: 2 } }",
            "scale.workers.min",
        ),
        ("priority: 1000", "priority"),
        ("retries: 1000", "retries"),
        ("checkpoint: { keep: 0 }", "checkpoint.keep"),
        (
            "exchange: { consistency: { kind: eventual } }",
            "exchange.consistency",
        ),
        ("exchange: { consistency: { kind: ssp } }", "staleness"),
        (
            "resources: { worker: { gpus: 99 } }",
            "resources.worker.gpus",
        ),
        ("labels: [a, b]", "labels"),
    ] {
        let output = submit(&cluster, &format!("{RIGHT}{change}\n"));
        refused(&output, 3, &[named]);
    }
    for (from, to, named) in [
        (
            "name: fashion-mnist",
            "name: imagenet",
            "engine.dataset.name",
        ),
        ("kind: mlp", "kind: transformer", "engine.model"),
        ("batch: 64", "batch: 0", "engine.batch"),
        ("muster/v1", "muster/v9", "version"),
        ("name: right", "name: Not A Name", "name"),
        ("stop: { steps: 10 }", "stop: {}", "stop"),
        ("learning_rate: 0.1", "learning_rate: fast", "learning_rate"),
    ] {
        refused(&submit(&cluster, &RIGHT.replace(from, to)), 3, &[named]);
    }
    refused(&submit(&cluster, "a: [unclosed"), 2, &["YAML"]);
    // The API server refuses a body above 1 MiB, and the command line a text that is not a
    // document.
    for (bytes, code, named) in [(2 << 20, 3, "1"), (10 << 20, 2, "4194304")] {
        let long = format!("{RIGHT}labels: {{ long: {} }}\n", "x".repeat(bytes));
        refused(&submit(&cluster, &long), code, &[named]);
    }
    refused(
        &run(&cluster, &["submit", "/nowhere/job.yaml"]),
        1,
        &["/nowhere/job.yaml"],
    );
    refused(
        &run(&cluster, &["show", "no-such-job"]),
        4,
        &["no-such-job"],
    );
    refused(
        &run(
            &cluster,
            &["cancel", "01890000-0000-7000-8000-000000000000"],
        ),
        4,
        &[],
    );
    refused(
        &run(&cluster, &["drain", "no-such-node"]),
        4,
        &["no-such-node"],
    );
    refused(
        &run(&cluster, &["list", "--phase", "sleeping"]),
        2,
        &["sleeping", "queued"],
    );
    refused(
        &run(&cluster, &["list", "--label", "novalue"]),
        2,
        &["KEY=VALUE"],
    );
    refused(&run(&cluster, &["--token", "wrong", "list"]), 6, &["token"]);
    refused(
        &run(
            &cluster,
            &["--server", "http://127.0.0.1:1", "--token", "x", "list"],
        ),
        5,
        &["127.0.0.1:1"],
    );

    let jobs = cluster
        .client()
        .jobs(&muster_client::JobQuery::default())
        .await
        .expect("the list");
    assert!(jobs.items.is_empty(), "nothing was submitted: {jobs:?}");
    cluster.down();
}

/// The document is valid, so it is submitted. The answer states at once that it cannot start on
/// this cluster.
#[tokio::test]
async fn submission_of_job_that_never_fits_prints_reason() {
    let mut cluster = TestCluster::start(TestClusterOptions { nodes: 1, slots: 1 }).await;
    let large = format!("{RIGHT}scale: {{ workers: {{ min: 3, max: 3 }} }}\n");
    let output = submit(&cluster, &large);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("never starts") && said.contains("whole cluster has 1"),
        "{said}"
    );
    let fits = submit(&cluster, &RIGHT.replace("name: right", "name: fits"));
    let said = String::from_utf8_lossy(&fits.stderr);
    assert!(
        fits.status.success() && !said.contains("never starts"),
        "{said}"
    );
    cluster.down();
}

#[tokio::test]
async fn garbage_on_data_plane_does_not_harm_job() {
    let mut cluster = TestCluster::start(TestClusterOptions { nodes: 1, slots: 1 }).await;
    let document = muster_e2e::story::document("bothered", (1, 1), (1, 1), 400);
    let job = cluster.submit(&document).await.id;
    cluster
        .until(job, "some training", |job| {
            job.progress.as_ref().is_some_and(|p| p.step >= 30)
        })
        .await;
    let tasks = cluster.client().tasks(job).await.expect("tasks");
    let address = tasks
        .iter()
        .find_map(|task| task.address.clone())
        .expect("a shard listens");
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 4096], &[0; 64], b""] {
        let mut stream = TcpStream::connect(&address).expect("it listens");
        // The server may close before everything is written.
        let _ = stream.write_all(garbage);
        drop(stream);
    }
    // Half-open connections stay open while the job runs.
    let idle: Vec<_> = (0..8)
        .map(|_| TcpStream::connect(&address).expect("it listens"))
        .collect();
    let done = cluster
        .until(job, "success", |job| {
            job.phase == muster_model::job::JobPhase::Succeeded
        })
        .await;
    drop(idle);
    assert_eq!(done.failures, 0);
    assert_eq!(
        cluster.resumed_at(job).await,
        [0_u64; 0],
        "it was never restarted"
    );
    cluster.down();
}

fn submit(cluster: &TestCluster, document: &str) -> Output {
    let mut child = cluster
        .muster()
        .args(["submit", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("muster runs");
    child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(document.as_bytes())
        .expect("it reads");
    child.wait_with_output().expect("it ends")
}

fn run(cluster: &TestCluster, arguments: &[&str]) -> Output {
    cluster
        .muster()
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("muster runs")
}

fn refused(output: &Output, code: i32, named: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{text}");
    for word in named {
        assert!(text.contains(word), "{word:?} is named in {text}");
    }
    assert!(!text.contains("panicked"), "{text}");
}
