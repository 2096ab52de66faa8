//! Checkpoints of programs, on a shared folder and in a bucket: a killed program continues from the
//! newest, older ones are pruned, a download gives the same bytes, and another job begins from one.

use crate::s3;
use muster_e2e::cluster::{CheckpointBucket, TestCluster, TestClusterOptions};
use muster_model::id::JobId;
use muster_model::job::JobPhase;
use muster_model::view::CheckpointView;
use serde_json::json;
use std::path::Path;

const NODES: TestClusterOptions = TestClusterOptions { nodes: 2, slots: 1 };

/// Trains 60 steps, each with a checkpoint every tenth. The content tells where it began.
const TRAINS: &str = r#"
import os, signal, time
import muster

job = muster.init()
folder = job.checkpoint_dir
found = sorted(int(path.name.split("-")[1]) for path in folder.glob("step-*"))
first = found[-1] if found else 0
print("begins at", first, "with", [f"step-{step}" for step in found], flush=True)
for step in range(first + 1, 61):
    time.sleep(0.1)
    f1 = 0.9 if step == 20 else 0.5
    job.report(step, {"val/f1": f1})
    if step % 10 == 0:
        path = folder / f"step-{step}"
        path.mkdir(exist_ok=True)
        (path / "weights.bin").write_bytes(bytes([step]) * 300_000)
        (path / "state.txt").write_text(f"{step} of {first}")
        job.checkpointed(step, path)
    if step == 40 and first == 0:
        time.sleep(8)
        os.kill(os.getpid(), signal.SIGKILL)
"#;

fn document() -> serde_json::Value {
    json!({
        "version": "muster/v1", "name": "trainer",
        "command": { "argv": ["python3", "train.py"], "files": { "train.py": TRAINS } },
        "checkpoint": { "keep": 2, "keep_best": { "metric": "val/f1", "goal": "maximize" } },
    })
}

async fn checkpoints(cluster: &TestCluster, job: JobId) -> Vec<CheckpointView> {
    let all = cluster.client().checkpoints(job).await.expect("a list");
    all.into_iter().filter(|one| one.retained).collect()
}

fn steps(all: &[CheckpointView]) -> Vec<u64> {
    all.iter().map(|one| one.written.step).collect()
}

async fn until_steps(cluster: &TestCluster, job: JobId, expected: &[u64]) {
    for _ in 0..600 {
        let found = steps(&checkpoints(cluster, job).await);
        if found == expected {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let found = steps(&checkpoints(cluster, job).await);
    let (logs, events) = (
        cluster.run(&["logs", "trainer"]),
        cluster.run(&["events", "trainer"]),
    );
    panic!("{found:?}; expected {expected:?}\n{logs}\n{events}");
}

async fn story(cluster: &mut TestCluster) -> JobId {
    let job = cluster.submit(&document().to_string()).await.id;
    until_steps(cluster, job, &[40, 30, 20]).await;
    cluster.succeeded(job).await;
    until_steps(cluster, job, &[60, 50, 20]).await;
    let all = checkpoints(cluster, job).await;
    assert_eq!(all[0].metrics.get("val/f1"), Some(&0.5));
    assert_eq!(
        (all[0].file_count, all[0].written.path.as_str()),
        (Some(2), "step-60")
    );
    let table = cluster.run(&["checkpoints", "trainer"]);
    assert!(
        table.contains("best") && table.contains("val/f1=0.9"),
        "{table}"
    );

    let to = tempfile::tempdir().expect("a folder");
    let place = to.path().display().to_string();
    let _ = cluster.run(&["checkpoints", "trainer", "--download", "60", "--to", &place]);
    let weights = std::fs::read(to.path().join("step-60/weights.bin"));
    assert!(weights.expect("downloaded") == vec![60; 300_000]);
    let state = std::fs::read_to_string(to.path().join("step-60/state.txt"));
    assert_eq!(state.expect("downloaded"), "60 of 40", "it continued");

    let mut fork = document();
    fork["name"] = json!("fork");
    fork["from"] = json!({ "job": job, "step": 20 });
    let fork = cluster.submit(&fork.to_string()).await.id;
    let ended = cluster
        .until(fork, "the end", |job| job.phase.is_terminal())
        .await;
    assert_eq!(ended.phase, JobPhase::Succeeded, "{ended:?}");
    let logs = cluster.run(&["logs", "fork"]);
    assert!(logs.contains("begins at 20 with ['step-20']"), "{logs}");
    job
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("there");
    let names = entries.map(|entry| entry.expect("read").file_name());
    let mut names: Vec<String> = names.filter_map(|name| name.into_string().ok()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn checkpoints_of_a_program_are_managed_in_a_folder() {
    let mut cluster = TestCluster::start(NODES).await;
    let job = story(&mut cluster).await;
    let tenant = names(&cluster.checkpoints())
        .into_iter()
        .find(|name| name != "artifacts" && name != "code")
        .expect("a tenant");
    let folder = cluster.checkpoints().join(tenant).join(job.to_string());
    assert_eq!(names(&folder), ["step-20", "step-50", "step-60"]);
    cluster.down();
}

#[tokio::test]
async fn checkpoints_of_a_program_are_managed_in_a_bucket() {
    let server = s3::TestBucket::start();
    let bucket = CheckpointBucket {
        place: server.place(),
        environment: server.environment(),
    };
    let mut cluster = TestCluster::start_saving(NODES, bucket).await;
    let job = story(&mut cluster).await;
    let logs = cluster.run(&["logs", "trainer"]);
    assert!(logs.contains("begins at 40 with ['step-40']"), "{logs}");
    let of_job = |name: &String| name.contains(&job.to_string());
    let left: Vec<String> = server.objects().into_iter().filter(of_job).collect();
    assert_eq!(left.len(), 3, "{left:?}");
    cluster.down();
}
