//! A second job comes and goes. The first shrinks without a restart of a task, loses no step and
//! learns as well as one that was never resized. Jobs that must restart continue from their
//! checkpoints.

use muster_e2e::cluster::{TestCluster, TestClusterOptions};
use muster_e2e::story::{
    document, every_round_replays, no_gpu_was_held_twice, training_is_continuous,
};
use muster_model::event::Event;
use muster_model::id::JobId;
use muster_model::job::JobPhase;

const STEPS: u64 = 1_000;

#[tokio::test]
async fn elastic_job_shrinks_without_restart_or_lost_step() {
    let mut cluster = TestCluster::start(TestClusterOptions { nodes: 2, slots: 2 }).await;
    let alone = cluster
        .submit(&document("alone", (2, 2), (1, 1), STEPS))
        .await
        .id;
    let alone = cluster.succeeded(alone).await;

    let first = cluster
        .submit(&document("first", (1, 4), (1, 2), STEPS))
        .await
        .id;
    cluster
        .until(first, "some training", |job| {
            job.progress.as_ref().is_some_and(|p| p.step >= 100)
        })
        .await;
    let before = sizes(&cluster, first).await;
    let second = cluster
        .submit(&document("second", (2, 2), (1, 1), 200))
        .await
        .id;
    cluster.succeeded(second).await;
    let done = cluster.succeeded(first).await;

    let sizes = sizes(&cluster, first).await;
    assert!(
        sizes.len() > before.len(),
        "the scheduler changed its size: {sizes:?}"
    );
    assert!(
        sizes.iter().any(|size| *size <= 2),
        "it made room: {sizes:?}"
    );
    let accuracy =
        |job: &muster_model::view::JobView| job.progress.as_ref().and_then(|p| p.test_accuracy);
    let (with, without) = (
        accuracy(&done).expect("evaluated"),
        accuracy(&alone).expect("evaluated"),
    );
    assert!(
        (with - without).abs() <= 0.01,
        "accuracy {with} with resizes, {without} without"
    );

    // The same processes from beginning to end, except for those that joined and left.
    assert_eq!(cluster.resumed_at(first).await, [0_u64; 0]);
    let tasks = cluster.client().tasks(first).await.expect("tasks");
    for survivor in ["worker-0", "ps-0"] {
        let count = tasks.iter().filter(|task| task.name == survivor).count();
        assert_eq!(count, 1, "{survivor} was never started again");
    }
    let history = cluster.history(first).await;
    let resizes = history.iter().filter_map(|entry| match entry.event {
        Event::Resized {
            step,
            workers,
            pause_ms,
            ..
        } => Some((step, workers, pause_ms)),
        _ => None,
    });
    let resizes: Vec<(u64, u32, u64)> = resizes.collect();
    println!("resized at (step, workers, pause in ms): {resizes:?}");
    assert!(!resizes.is_empty(), "its tasks took another size");
    assert_eq!(done.failures, 0, "a resize is no failure");
    training_is_continuous(&cluster, first, STEPS).await;
    no_gpu_was_held_twice(&cluster, &[alone.id, first, second]).await;
    cluster.down();
}

#[tokio::test]
async fn paused_job_holds_no_gpus_and_continues_at_its_step() {
    let mut cluster = TestCluster::start(TestClusterOptions { nodes: 1, slots: 2 }).await;
    let job = cluster
        .submit(&document("paused", (2, 2), (1, 1), 400))
        .await
        .id;
    cluster
        .until(job, "some training", |job| {
            job.progress.as_ref().is_some_and(|p| p.step >= 60)
        })
        .await;
    cluster
        .client()
        .pause(job)
        .await
        .expect("a running job can be paused");
    let paused = cluster
        .until(job, "the pause", |job| job.phase == JobPhase::Paused)
        .await;
    let stopped_at = paused.resume_step.expect("a checkpoint was written");
    cluster
        .until(job, "a forecast", |job| job.forecast.is_some())
        .await;
    let nodes = cluster.client().nodes().await.expect("nodes");
    assert!(
        nodes
            .iter()
            .flat_map(|node| &node.gpus)
            .all(|gpu| gpu.job.is_none()),
        "it holds no GPU"
    );
    cluster
        .client()
        .resume(job)
        .await
        .expect("a paused job can be resumed");
    cluster.succeeded(job).await;
    assert_eq!(cluster.resumed_at(job).await, [stopped_at]);
    every_round_replays(&cluster);
    cluster.down();
}

#[tokio::test]
async fn drained_node_loses_its_tasks_to_other_nodes() {
    let mut cluster = TestCluster::start(TestClusterOptions { nodes: 2, slots: 1 }).await;
    let job = cluster
        .submit(&document("moved", (1, 1), (1, 1), 800))
        .await
        .id;
    cluster
        .until(job, "some training", |job| {
            job.progress.as_ref().is_some_and(|p| p.step >= 60)
        })
        .await;
    let (task, _) = cluster.task_process(job, "worker-0").await;
    cluster
        .client()
        .drain(&task.node)
        .await
        .expect("an administrator may drain");
    cluster.succeeded(job).await;
    let tasks = cluster.client().tasks(job).await.expect("tasks");
    let last = tasks.iter().map(|task| task.revision).max().expect("tasks");
    assert!(last >= 2, "it was moved");
    assert!(
        tasks
            .iter()
            .filter(|other| other.revision == last)
            .all(|other| other.node != task.node)
    );
    cluster.down();
}

/// Workers of each revision, in order.
async fn sizes(cluster: &TestCluster, job: JobId) -> Vec<u32> {
    let history = cluster.history(job).await;
    let placed = history.iter().filter_map(|entry| match entry.event {
        Event::JobPlaced { workers, .. } => Some(workers),
        _ => None,
    });
    placed.collect()
}
