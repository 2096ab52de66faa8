//! Users' own programs, from `muster submit` to the last line of their logs.

use muster_e2e::cluster::{TestCluster, TestClusterOptions};
use muster_e2e::story::{log, no_gpu_was_held_twice};
use muster_e2e::tools::{packages, path_with, tool};
use muster_model::event::Event;
use muster_model::id::JobId;
use muster_model::job::RequeueCause;
use muster_model::progress::Split;
use muster_model::view::JobView;
use std::path::{Path, PathBuf};

const PAIR: TestClusterOptions = TestClusterOptions { nodes: 2, slots: 1 };

#[tokio::test]
async fn processes_of_command_start_together_with_ranks() {
    let mut cluster = TestCluster::start(PAIR).await;
    let argv = r#"echo "rank $RANK of $WORLD_SIZE, local $LOCAL_RANK of $LOCAL_WORLD_SIZE, start $MUSTER_RESTART_COUNT, meets at $MASTER_ADDR:$MASTER_PORT""#;
    let job = cluster
        .submit(&format!(
            "
version: muster/v1
name: hello
command: {{ argv: [sh, -c, '{argv}'] }}
scale: {{ workers: {{ min: 2, max: 2 }} }}"
        ))
        .await
        .id;
    succeeded(&cluster, job).await;
    let (first, second) = (
        log(&cluster, job, "worker-0").await,
        log(&cluster, job, "worker-1").await,
    );
    assert!(
        first.starts_with("rank 0 of 2, local 0 of 1, start 0"),
        "{first}"
    );
    assert!(
        second.starts_with("rank 1 of 2, local 0 of 1, start 0"),
        "{second}"
    );
    assert_eq!(
        last_word(&first),
        last_word(&second),
        "all meet at rank 0's address"
    );
    cluster.down();
}

#[tokio::test]
async fn tensorflow_job_gets_tf_config() {
    let mut cluster = TestCluster::start(TestClusterOptions { nodes: 2, slots: 2 }).await;
    let job = submit(&cluster, "tf-config.yaml", &[]).await;
    succeeded(&cluster, job.id).await;
    let chief = json_of(&log(&cluster, job.id, "worker-0").await);
    let worker = json_of(&log(&cluster, job.id, "worker-1").await);
    let server = json_of(&log(&cluster, job.id, "ps-0").await);
    assert_eq!(
        chief["task"],
        serde_json::json!({ "type": "chief", "index": 0 })
    );
    assert_eq!(
        worker["task"],
        serde_json::json!({ "type": "worker", "index": 0 })
    );
    assert_eq!(
        server["task"],
        serde_json::json!({ "type": "ps", "index": 0 })
    );
    for told in [&worker, &server] {
        assert_eq!(told["cluster"], chief["cluster"]);
    }
    for kind in ["chief", "worker", "ps"] {
        assert_eq!(
            chief["cluster"][kind].as_array().map(Vec::len),
            Some(1),
            "{chief}"
        );
    }
    cluster.down();
}

#[tokio::test]
async fn mpirun_job_runs_on_all_hosts() {
    let mut cluster = TestCluster::start(PAIR).await;
    let path = path_with(&tool("MUSTER_MPIRUN"));
    let root = [
        ("PATH", path.as_str()),
        ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
        ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ];
    let job = submit(&cluster, "mpi-hello.yaml", &root).await;
    succeeded(&cluster, job.id).await;
    let log = log(&cluster, job.id, "worker-0").await;
    for rank in 0..2 {
        let line = format!("hello from rank {rank} of 2");
        assert!(log.contains(&line), "{log}");
    }
    cluster.down();
}

#[tokio::test]
async fn program_with_python_package_continues_after_preemption() {
    let mut cluster = TestCluster::start(TestClusterOptions { nodes: 1, slots: 1 }).await;
    let document = document(
        "version: muster/v1
name: counts
command: { argv: [python3, report.py], steps: 60 }",
        &[],
        &[("report.py", "examples/scripts/report.py")],
    );
    let job = cluster
        .client()
        .submit(&document, None)
        .await
        .expect("right")
        .id;
    preempted_at(&cluster, job, 15).await;
    let done = succeeded(&cluster, job).await;
    assert_eq!(done.failures, 0, "a preemption is no failure");
    assert_eq!(done.progress.map(|progress| progress.step), Some(60));
    continued(&cluster, job).await;
    cluster.down();
}

#[tokio::test]
async fn mlflow_script_reports_its_curve() {
    let mlflow = tool("MUSTER_MLFLOW_PYTHON");
    let mut cluster = TestCluster::start(TestClusterOptions { nodes: 1, slots: 1 }).await;
    let script = r#"
import mlflow, time
mlflow.set_experiment("anything")
with mlflow.start_run(run_name="a run"):
    mlflow.log_param("lr", 0.1)
    mlflow.set_tag("who", "me")
    for step in range(1, 21):
        mlflow.log_metrics({"train_loss": 1.0 / step, "train_acc": 0.5, "train/f1": step / 20}, step=step)
        time.sleep(0.15)
    mlflow.log_metrics({"val_loss": 0.25, "val_acc": 0.75}, step=20)
run = mlflow.last_active_run()
assert run.data.params == {"lr": "0.1"} and run.data.tags["who"] == "me", run
assert run.data.metrics["train_loss"] == 0.05 and run.info.status == "FINISHED", run
print("logged")
"#;
    let mut document = document(
        "{ version: muster/v1, name: tracked, retries: 0 }",
        &[],
        &[],
    );
    document["command"] = serde_json::json!({
        "argv": [mlflow, "script.py"], "files": { "script.py": script }, "steps": 20,
    });
    let job = cluster
        .client()
        .submit(&document, None)
        .await
        .expect("right")
        .id;
    let done = succeeded(&cluster, job).await;
    let progress = done.progress.expect("progress");
    assert_eq!((progress.step, progress.total_steps), (20, Some(20)));
    assert_eq!(
        (progress.test_accuracy, progress.evaluated_on),
        (Some(0.75), Some(Split::Validation))
    );
    let text = log(&cluster, job, "worker-0").await;
    assert_eq!(text.trim(), "logged", "and no link without a page");
    let series = cluster
        .client()
        .progress(job, None, None)
        .await
        .expect("a series");
    assert!(series.samples.len() >= 15, "{series:?}");
    assert_eq!(series.evaluations.len(), 1);
    let last = &series.samples[series.samples.len() - 1].sample;
    assert_eq!((last.step, last.loss, last.accuracy), (20, 0.05, Some(0.5)));
    assert_eq!(cluster.resumed_at(job).await, [0_u64; 0]);
    let metrics = cluster.client().metrics(job).await.expect("metrics");
    let names: Vec<_> = metrics.iter().map(|metric| metric.name.as_str()).collect();
    let expected = ["train/f1", "train_acc", "train_loss", "val_acc", "val_loss"];
    assert_eq!(names, expected);
    let f1 = &metrics[0];
    assert_eq!(
        (f1.last_step, f1.last, f1.min, f1.values),
        (20, 1.0, 0.05, 20)
    );
    cluster.down();
}

#[tokio::test]
async fn unchanged_pytorch_script_survives_preemption_on_two_nodes() {
    let torch = tool("MUSTER_TORCH_PYTHON");
    let mlflow = tool("MUSTER_MLFLOW_PYTHON");
    let mut cluster = TestCluster::start(PAIR).await;
    let path = path_with(&torch);
    let text =
        std::fs::read_to_string(root().join("examples/pytorch-ddp.yaml")).expect("the example");
    let document = document(
        &text.replace("--steps 400", "--steps 400 --pause 0.03"),
        &[("PATH", &path), ("PYTHONPATH", &packages(&mlflow))],
        &[],
    );
    let job = cluster
        .client()
        .submit(&document, None)
        .await
        .expect("right")
        .id;
    preempted_at(&cluster, job, 60).await;
    let done = succeeded(&cluster, job).await;
    assert_eq!(done.failures, 0, "a preemption is no failure");
    assert_eq!(done.progress.map(|progress| progress.step), Some(400));
    continued(&cluster, job).await;
    let series = cluster
        .client()
        .progress(job, None, None)
        .await
        .expect("a series")
        .samples;
    let (first, last) = (&series[0].sample, &series[series.len() - 1].sample);
    assert!(
        last.loss < first.loss / 2.0,
        "it learns: {} to {}",
        first.loss,
        last.loss
    );
    no_gpu_was_held_twice(&cluster, &[job]).await;
    cluster.down();
}

/// Waits until the job is at a step, and then preempts it with a job on all of its slots.
async fn preempted_at(cluster: &TestCluster, job: JobId, step: u64) {
    cluster
        .until(job, "some steps", |job| {
            job.progress.as_ref().is_some_and(|p| p.step >= step)
        })
        .await;
    let slots = cluster
        .client()
        .job(job)
        .await
        .expect("a job")
        .workers
        .running;
    let urgent = cluster
        .submit(&format!(
            "
version: muster/v1
name: urgent
priority: 100
command: {{ argv: [sleep, '2'] }}
scale: {{ workers: {{ min: {slots}, max: {slots} }} }}"
        ))
        .await
        .id;
    succeeded(cluster, urgent).await;
}

/// Checks that the job was preempted once, and that its series is continuous over both starts.
async fn continued(cluster: &TestCluster, job: JobId) {
    let resumed = cluster.resumed_at(job).await;
    assert_eq!(resumed.len(), 1, "it went on once: {resumed:?}");
    assert!(resumed[0] > 0, "from its own checkpoint");
    let history = cluster.history(job).await;
    let preempted = history.iter().any(|entry| {
        format!("{:?}", entry.event).contains(&format!("{:?}", RequeueCause::Preempted))
    });
    assert!(preempted, "{history:#?}");
    let told: Vec<&Event> = history.iter().map(|entry| &entry.event).collect();
    let series = cluster
        .client()
        .progress(job, None, None)
        .await
        .expect("a series")
        .samples;
    let steps: Vec<u64> = series.iter().map(|sample| sample.sample.step).collect();
    assert!(steps.is_sorted() && steps.len() > 10, "{steps:?}");
    assert!(
        steps.iter().any(|step| *step < resumed[0]) && steps.iter().any(|step| *step >= resumed[0]),
        "{steps:?} of {told:?}"
    );
}

fn last_word(log: &str) -> Option<&str> {
    log.trim().rsplit_once(' ').map(|(_, word)| word)
}

fn json_of(log: &str) -> serde_json::Value {
    serde_json::from_str(log.trim()).unwrap_or_else(|error| panic!("{error}: {log}"))
}

async fn succeeded(cluster: &TestCluster, job: JobId) -> JobView {
    cluster.succeeded(job).await
}

/// Submits by the command line, as users do.
async fn submit(cluster: &TestCluster, example: &str, variables: &[(&str, &str)]) -> JobView {
    let text = std::fs::read_to_string(root().join("examples").join(example)).expect("an example");
    let document = document(&text, variables, &[]);
    let path = cluster.data().join(example);
    std::fs::write(&path, document.to_string()).expect("written");
    let output = cluster
        .muster()
        .args(["submit", "-o", "json"])
        .arg(&path)
        .output()
        .expect("muster runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).expect("a job")
}

fn document(text: &str, variables: &[(&str, &str)], files: &[(&str, &str)]) -> serde_json::Value {
    let mut document: serde_json::Value = serde_norway::from_str(text).expect("YAML");
    for (name, value) in variables {
        document["command"]["env"][name] = serde_json::json!(value);
    }
    for (name, path) in files {
        let text = std::fs::read_to_string(root().join(path)).expect("a script");
        document["command"]["files"][name] = serde_json::json!(text);
    }
    document
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
