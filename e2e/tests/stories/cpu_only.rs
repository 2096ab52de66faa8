//! Jobs without GPUs start at once on a cluster whose slots are all held, and disturb no other job.

use muster_e2e::cluster::{TestCluster, TestClusterOptions};
use muster_e2e::story::{document, every_round_replays, log};
use muster_model::id::JobId;
use muster_model::job::JobPhase;
use muster_model::view::JobView;

const NODE: TestClusterOptions = TestClusterOptions { nodes: 1, slots: 2 };
/// Resources of a worker without GPUs.
const NO_GPUS: &str = "resources: { worker: { gpus: 0, cpu_milli: 300 } }";

#[tokio::test]
async fn jobs_without_gpus_run_beside_held_slots() {
    let mut cluster = TestCluster::start(NODE).await;
    let end = cluster.data().join("end");
    let holder = format!(
        "
version: muster/v1
name: holder
retries: 0
command: {{ argv: [sh, -c, 'until [ -e {} ]; do sleep 0.1; done'] }}
scale: {{ workers: {{ min: 2, max: 2 }} }}",
        end.display()
    );
    let holder = cluster.submit(&holder).await.id;
    cluster.until(holder, "its start", is_running).await;

    let engine = document("trains", (2, 2), (1, 1), 20);
    let engine = submitted(&cluster, "trains", &format!("{engine}{NO_GPUS}\n")).id;
    let visible = r#"echo "sees ${CUDA_VISIBLE_DEVICES-all} with $MUSTER_THREADS thread""#;
    let program = format!(
        "
version: muster/v1
name: prepares
command: {{ argv: [sh, -c, '{visible}'] }}
scale: {{ workers: {{ min: 2, max: 2 }} }}
{NO_GPUS}"
    );
    let program = submitted(&cluster, "prepares", &program).id;
    for job in [program, engine] {
        let done = cluster.succeeded(job).await;
        assert_eq!((done.revision, done.failures), (1, 0), "{done:?}");
        let tasks = cluster.client().tasks(job).await.expect("tasks");
        assert!(tasks.iter().all(|task| task.gpus.is_empty()), "{tasks:?}");
    }
    for worker in ["worker-0", "worker-1"] {
        let said = log(&cluster, program, worker).await;
        assert_eq!(said.trim(), "sees  with 1 thread");
    }
    let shown = cluster.run(&["explain", &too_large(&cluster).await.to_string()]);
    assert!(shown.contains("asks for 256.0 cores"), "{shown}");
    assert!(!shown.contains("GPUs free"), "{shown}");

    let before = cluster.client().job(holder).await.expect("there");
    assert!(is_running(&before), "{before:?}");
    std::fs::write(&end, "").expect("written");
    let after = cluster.succeeded(holder).await;
    assert_eq!((after.revision, after.failures), (1, 0), "{after:?}");
    every_round_replays(&cluster);
    cluster.down();
}

fn is_running(job: &JobView) -> bool {
    job.phase == JobPhase::Running
}

/// Submits a job that needs more CPU than any node has, and waits for its reason.
async fn too_large(cluster: &TestCluster) -> JobId {
    let text = "
version: muster/v1
name: too-large
command: { argv: ['true'] }
resources: { worker: { gpus: 0, cpu_milli: 256000 } }";
    let job = cluster.submit(text).await.id;
    let waits = |job: &JobView| job.waiting.is_some();
    cluster.until(job, "its wait reason", waits).await.id
}

/// Submits by the command line, as users do.
fn submitted(cluster: &TestCluster, name: &str, document: &str) -> JobView {
    let path = cluster.data().join(format!("{name}.yaml"));
    std::fs::write(&path, document).expect("written");
    let path = path.display().to_string();
    let said = cluster.run(&["submit", "-o", "json", &path]);
    serde_json::from_str(&said).expect("a job")
}
