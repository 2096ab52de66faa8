//! A node with a session that starts none of its tasks.

use crate::support::{Greeting, Node, PATIENCE, Shell, Store};
use muster_core::policy::StartLimit;
use muster_model::assignment::Observed;
use muster_model::fault::NodeFault;
use muster_model::job::JobPhase;
use muster_scheduler::clock;
use muster_store::{plan, pool};

const LEASE_MS: u64 = 60_000;

async fn node(shell: &Shell, name: &str) -> Node {
    let greeting = Greeting {
        name,
        pods: Some(false),
        ..Greeting::default()
    };
    let node = Node::greet(shell.address, &greeting).await;
    node.expect("welcome")
}

#[tokio::test]
async fn job_leaves_node_that_starts_nothing_and_node_is_charged() {
    let store = Store::new().await;
    let mut shell = Shell::start_with(&store, LEASE_MS, |config| {
        config.start_limit = StartLimit {
            // Longer than the job's first back-off, so that the node is still excluded after it.
            process_ms: 5_000,
            pod_ms: 3_600_000,
        };
    })
    .await;
    shell.until_it_leads().await;
    let mut deaf = node(&shell, "deaf").await;
    let job = store.submit((1, 1)).await;
    let late = deaf.assignment(|tasks| tasks.len() == 2).await;
    let mut other = node(&shell, "other").await;
    let tasks = other.assignment(|tasks| tasks.len() == 2).await;
    let revision = tasks[0].launch.revision;
    assert!(revision > 1, "it was with the deaf node first");
    let told = deaf.assignment(<[_]>::is_empty);
    let told = tokio::time::timeout(PATIENCE, told).await;
    told.expect("it is told to stop what it may have begun");
    for task in &tasks {
        other.report(task, &Observed::Running, 0, &[]).await;
    }
    let running = store
        .until(job, "running", |job| job.state.phase() == JobPhase::Running)
        .await;
    assert_eq!((running.revision, running.failures), (revision, 0));

    // Later reports of the node have no effect.
    deaf.report_all(&late, &Observed::Running).await;
    deaf.acknowledged().await;
    assert_eq!(store.job(job).await.revision, revision);
    let mut tx = pool::begin(&store.pool).await.expect("begun");
    let loaded = plan::Loader::new(100)
        .load(&mut tx, clock::now())
        .await
        .expect("loaded");
    let charged = loaded.faults.values().flatten().map(|charge| charge.fault);
    let charged: Vec<NodeFault> = charged.collect();
    assert_eq!(charged.first(), Some(&NodeFault::Hang { at_start: true }));
}
