//! Assignments of many tasks: no job blocks a node for other jobs.

use crate::support::{Assigned, Greeting, Node, Shell, Store};
use muster_model::assignment::Observed;
use muster_model::id::JobId;
use muster_model::job::{JobPhase, JobState};
use muster_model::task::Outcome;
use muster_proto::MAX_MESSAGE_BYTES;

const LEASE_MS: u64 = 60_000;
const SHARDS: u32 = 1_024;

/// One worker, and the maximum number of shards of a document.
async fn many_shards(store: &Store) -> JobId {
    let document = serde_json::json!({
        "version": "muster/v1",
        "name": "many",
        "engine": {
            "model": { "kind": "mlp", "hidden": [8] },
            "dataset": { "name": "fashion-mnist" },
            "optimizer": { "kind": "sgd", "learning_rate": 0.1 },
            "batch": 64,
        },
        "resources": { "ps_shard": { "cpu_milli": 0, "memory_bytes": 64 << 20 } },
        "scale": { "workers": { "min": 1, "max": 1 }, "ps_shards": { "min": SHARDS, "max": SHARDS } },
        "stop": { "steps": 1000 },
    });
    let spec: muster_model::spec::JobSpec =
        serde_json::from_value(document.clone()).expect("a document");
    spec.validate().expect("the api takes it");
    store.submit_document(document).await
}

async fn roomy(shell: &Shell, takes_parts: bool) -> Node {
    let greeting = Greeting {
        gpus: 4,
        memory_bytes: 256 << 30,
        takes_parts,
        ..Greeting::default()
    };
    Node::greet(shell.address, &greeting)
        .await
        .expect("welcome")
}

fn of(job: JobId, tasks: &[Assigned]) -> Vec<&Assigned> {
    let tasks = tasks.iter();
    tasks.filter(|task| task.launch.job_id == job).collect()
}

#[tokio::test]
async fn peers_of_job_are_sent_once_per_node() {
    let store = Store::new().await;
    let shell = Shell::leading(&store, LEASE_MS).await;
    let mut node = roomy(&shell, true).await;
    let job = many_shards(&store).await;
    let all = SHARDS as usize + 1;
    let tasks = node.assignment(|tasks| of(job, tasks).len() == all).await;
    let sent: usize = node.sent_bytes.iter().sum();
    assert!(sent < 2 << 20, "{sent} bytes for {all} tasks");
    for task in &tasks {
        assert_eq!(task.peers.ps_shards.len(), SHARDS as usize);
        assert_eq!(task.launch.spec.name, "many");
        assert!(!task.stop);
    }
}

/// The executor of the previous release receives only one large message.
#[tokio::test]
async fn unsendable_job_fails_and_others_start() {
    let store = Store::new().await;
    let shell = Shell::leading(&store, LEASE_MS).await;
    let mut node = roomy(&shell, false).await;
    let job = many_shards(&store).await;
    let told = node.assignment(|tasks| !of(job, tasks).is_empty()).await;
    assert!(told.iter().all(|task| task.stop), "none of it starts");
    assert!(node.sent_bytes[0] < MAX_MESSAGE_BYTES);
    let never = Observed::Gone {
        outcome: Outcome::NeverStarted,
    };
    node.report_all(&told, &never).await;
    let failed = store
        .until(job, "its failure", |job| {
            job.state.phase() == JobPhase::Failed
        })
        .await;
    let JobState::Failed { reason } = &failed.state else {
        panic!("it has failed: {:?}", failed.state);
    };
    assert!(reason.contains("1025 tasks on node node-1"), "{reason}");
    let limit = format!("at most {} bytes", MAX_MESSAGE_BYTES - (1 << 20));
    assert!(reason.contains(&limit), "{reason}");

    let other = store.submit((1, 1)).await;
    let tasks = node
        .assignment(|tasks| of(other, tasks).len() == 2 && of(job, tasks).is_empty())
        .await;
    assert!(tasks.iter().all(|task| !task.stop));
}
