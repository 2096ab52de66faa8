//! Isolation of task pods on one node, on a real API server with the tests' kubelet. A task sees
//! nothing of other jobs, tasks of one job share memory, and a task cannot fake its own end.

use muster_e2e::cluster::{PATIENCE, TestCluster, TestClusterOptions};
use muster_e2e::story::log;
use muster_model::id::JobId;
use muster_model::job::JobPhase;
use muster_model::task::Outcome;
use muster_model::view::TaskView;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const NODES: TestClusterOptions = TestClusterOptions { nodes: 1, slots: 3 };
const STEP: Duration = Duration::from_millis(100);
/// Prints what it can see, one line each: its node's data folder, another job and one of its tasks,
/// and all jobs' checkpoints.
const LOOKER: &str = r#"
data=$1 job=$2 task=$3 checkpoints=$4
echo "data:" $(ls "$data")
echo "tasks:" $(ls "$data/tasks")
cat "$data/tasks/$task/task.json" >/dev/null && echo "their job is read" || echo "their job is not read"
(exec 9<"$data/tasks/$task/shim.lock" && flock -n 9) && echo "their lock is taken" || echo "their lock is out of reach"
ls "$data/sockets/$job" && echo "their sockets are seen" || echo "their sockets are not seen"
(exec 9<"$data/executor.lock" && flock -n 9) && echo "the daemon's lock is taken" || echo "the daemon's lock is out of reach"
echo x >"$data/shown/lease" && echo "the lease is written" || echo "the lease is read only"
echo "checkpoints:" $(ls "$checkpoints"/*)
echo x >"$MUSTER_CHECKPOINT_DIR/mine" && echo "its own are written"
"#;
/// Fakes its own end and removes its identity files, and then waits for a file.
const LIAR: &str = r#"
cd "$MUSTER_TASK_DIR"
rm -f shim.lock pod.json
printf %s "$2" >exit.json
echo lied
until [ -e "$1" ]; do sleep 0.1; done
"#;

#[tokio::test]
async fn pods_are_isolated_by_job_and_share_memory_within_job() {
    let mut cluster = TestCluster::start_pods(NODES).await;
    let pair = cluster.submit(&pair()).await.id;
    cluster
        .until(pair, "a checkpoint", |job| {
            job.progress.as_ref().is_some_and(|p| p.step >= 60)
        })
        .await;
    let data = cluster.data().join("nodes/node-1");
    let workers = cluster.client().tasks(pair).await.expect("tasks");
    share_memory(&cluster, &data, pair);

    // The searched files exist for a process that may read them.
    let other = data.join("tasks").join(workers[0].id.to_string());
    assert!(other.join("task.json").is_file() && other.join("shim.lock").is_file());
    assert!(data.join("executor.lock").is_file());
    assert_eq!(workers.len(), 2, "{workers:?}");
    let looker = looker(&cluster, &data, pair, &workers[0]);
    let job = cluster.submit(&looker).await.id;
    cluster
        .until(job, "its end", |job| job.phase.is_terminal())
        .await;
    let own = cluster.client().tasks(job).await.expect("tasks");
    let log = log(&cluster, job, "worker-0").await;
    for line in [
        "data: shown tasks",
        &format!("tasks: {}", own[0].id),
        "their job is not read",
        "their lock is out of reach",
        "their sockets are not seen",
        "the daemon's lock is out of reach",
        "the lease is read only",
        &format!("checkpoints: {job}"),
        "its own are written",
    ] {
        assert!(log.lines().any(|said| said == line), "{line}: {log}");
    }
    let tenants = fs::read_dir(cluster.checkpoints()).expect("there are some");
    let of_tenant = tenants.last().expect("there are some").expect("a folder");
    for (job, name) in [(job, "mine"), (pair, "FENCE")] {
        let path = of_tenant.path().join(job.to_string()).join(name);
        assert!(path.is_file(), "{}", path.display());
    }

    let view = cluster.client().job(pair).await.expect("a job");
    assert_eq!((view.phase, view.revision), (JobPhase::Running, 1));
    cluster.client().cancel(pair).await.expect("cancelled");
    cluster
        .until(pair, "its end", |job| job.phase == JobPhase::Cancelled)
        .await;
    until_gone(&data.join("sockets").join(pair.to_string())).await;
    cluster.down();
}

#[tokio::test]
async fn task_that_fakes_its_end_holds_slot_until_pod_ends() {
    let mut cluster = TestCluster::start_pods(NODES).await;
    let over = cluster.data().join("over");
    let forged = serde_json::to_string(&Outcome::exited(3)).expect("JSON");
    let spec = serde_json::json!({
        "version": "muster/v1",
        "name": "liar",
        "retries": 0,
        "command": { "argv": ["sh", "-c", LIAR, "liar", over, forged] },
    });
    let job = cluster.submit(&spec.to_string()).await.id;
    cluster
        .until(job, "its start", |job| job.phase == JobPhase::Running)
        .await;
    let mut waited = Duration::ZERO;
    while !log(&cluster, job, "worker-0").await.contains("lied") {
        assert!(waited < PATIENCE, "it does not begin");
        tokio::time::sleep(STEP).await;
        waited += STEP;
    }
    let executor = cluster.running("muster-executor").remove(0);
    cluster.kill(&executor);
    // The next executor offers the free resources of its node: all but the one slot.
    let spec = |name: &str| {
        format!("version: muster/v1\nname: {name}\nretries: 0\ncommand: {{ argv: ['true'] }}\n")
    };
    let next = cluster.submit(&spec("next")).await.id;
    cluster.succeeded(next).await;
    let view = cluster.client().job(job).await.expect("a job");
    assert_eq!((view.phase, view.failures), (JobPhase::Running, 0));
    let own = cluster.pods().list();
    assert!(
        own.iter().any(
            |pod| pod["metadata"]["labels"]["muster.dev/job"] == job.to_string()
                && pod["metadata"].get("deletionTimestamp").is_none()
        ),
        "{own:?}"
    );
    fs::write(&over, "").expect("our own folder");
    let done = cluster
        .until(job, "its end", |job| job.phase.is_terminal())
        .await;
    assert_eq!((done.phase, done.revision), (JobPhase::Succeeded, 1));
    cluster.down();
}

/// Job of two workers on one node with all-reduce.
fn pair() -> String {
    "version: muster/v1
name: pair
engine:
  model: { kind: cnn, channels: [8, 16], dense: [32] }
  dataset: { name: fashion-mnist, train_limit: 6400, test_limit: 500 }
  optimizer: { kind: adam, learning_rate: 0.001 }
  batch: 64
exchange: { topology: all_reduce }
scale: { workers: { min: 2, max: 2 } }
checkpoint: { every_steps: 50, keep: 2 }
stop: { steps: 1000000 }
"
    .to_owned()
}

fn looker(cluster: &TestCluster, data: &Path, other: JobId, task: &TaskView) -> String {
    let spec = serde_json::json!({
        "version": "muster/v1",
        "name": "looker",
        "retries": 0,
        "command": { "argv": ["sh", "-c", LOOKER, "looker", data, other, task.id, cluster.checkpoints()] },
    });
    spec.to_string()
}

/// Checks that both processes map the same anonymous shared memory, and have met in their job's
/// folder.
fn share_memory(cluster: &TestCluster, data: &Path, job: JobId) {
    let place = data.join("sockets").join(job.to_string());
    let sockets: Vec<PathBuf> = fs::read_dir(&place)
        .expect("it is made for them")
        .map(|entry| entry.expect("our own folder").path())
        .collect();
    assert_eq!(sockets.len(), 2, "{sockets:?}");
    let tasks = cluster.running("muster-task");
    let maps: Vec<BTreeSet<String>> = tasks
        .iter()
        .map(|task| {
            let text = fs::read_to_string(format!("/proc/{}/maps", task.pid)).expect("it lives");
            let shared = text
                .lines()
                .filter(|line| line.contains("memfd:muster-arena"));
            // Inode of the file.
            shared
                .filter_map(|line| line.split_ascii_whitespace().nth(4).map(str::to_owned))
                .collect()
        })
        .collect();
    let [one, other] = &maps[..] else {
        panic!("two tasks were expected: {tasks:?}");
    };
    assert!(!one.is_disjoint(other), "{one:?} {other:?}");
}

async fn until_gone(path: &Path) {
    let mut waited = Duration::ZERO;
    while path.exists() {
        assert!(waited < PATIENCE, "{} is left", path.display());
        tokio::time::sleep(STEP).await;
        waited += STEP;
    }
}
