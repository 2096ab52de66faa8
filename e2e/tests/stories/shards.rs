//! PS shards of a training job: one moves off a drained node, their number follows the document,
//! and a killed one fails over to its replica. No other task restarts, and the model learns as well
//! as in an undisturbed run.

use muster_e2e::cluster::{TestCluster, TestClusterOptions};
use muster_e2e::story::{
    document, every_round_replays, no_gpu_was_held_twice, training_is_continuous,
};
use muster_model::event::Event;
use muster_model::id::JobId;
use muster_model::job::JobPhase;
use muster_model::spec::Range;
use muster_model::task::TaskState;
use muster_model::view::{JobChange, JobView, TaskView};

const STEPS: u64 = 1_500;
/// Maximum difference in accuracy between a disturbed and an undisturbed run.
const TOLERANCE: f64 = 0.005;

#[tokio::test]
async fn shards_move_and_change_in_number_during_training() {
    let mut cluster = TestCluster::start(TestClusterOptions { nodes: 4, slots: 1 }).await;
    let alone = succeeded(&cluster, &apart(&cluster, "alone").await).await;

    let job = cluster.submit(&apart(&cluster, "moved").await).await.id;
    trains_from(&cluster, job, 100).await;
    let before = shards(&cluster, job).await;
    let [shard] = &before[..] else {
        panic!("one shard: {before:?}");
    };
    let drained = shard.node.clone();
    let tasks = cluster.client().tasks(job).await.expect("tasks");
    let beside = tasks.iter().filter(|task| task.node == drained).count();
    assert_eq!(beside, 1, "it is alone on its node: {tasks:?}");
    let client = cluster.client();
    client.drain(&drained).await.expect("an administrator may");
    let step = resized(&cluster, job, 1).await;
    let moved = present(&cluster, job, 1).await;
    assert!(moved.iter().all(|task| task.node != drained), "{moved:?}");

    trains_from(&cluster, job, step + 50).await;
    scale(&cluster, job, 3).await;
    let step = resized(&cluster, job, 3).await;
    present(&cluster, job, 3).await;
    trains_from(&cluster, job, step + 50).await;
    scale(&cluster, job, 2).await;
    resized(&cluster, job, 2).await;
    present(&cluster, job, 2).await;

    let done = cluster.succeeded(job).await;
    let tasks = cluster.client().tasks(job).await.expect("tasks");
    let started = |name: &str| tasks.iter().filter(|task| task.name == name).count();
    assert_eq!((started("worker-0"), started("worker-1")), (1, 1));
    let all = tasks.iter().filter(|task| task.name.starts_with("ps-"));
    assert_eq!(all.count(), 4, "one, its successor and two more: {tasks:?}");
    assert_eq!(done.failures, 0);
    went_on_without_a_restart(&cluster, job).await;
    learned_as_well(&done, &alone);
    no_gpu_was_held_twice(&cluster, &[alone.id, job]).await;
    every_round_replays(&cluster);
    cluster.down();
}

#[tokio::test]
async fn killed_worker_and_killed_shard_restart_no_other_task() {
    let mut cluster = TestCluster::start(TestClusterOptions { nodes: 3, slots: 1 }).await;
    let alone = succeeded(&cluster, &with_replica("alone", (3, 3))).await;

    let job = cluster.submit(&with_replica("hit", (1, 3))).await.id;
    trains_from(&cluster, job, 100).await;
    let (worker, process) = cluster.task_process(job, "worker-2").await;
    cluster.kill(&process);
    let gone = told(&cluster, job, "who is gone", |event| match event {
        Event::PeerGone { task_id, step } => Some((*task_id, *step)),
        _ => None,
    })
    .await;
    assert_eq!(gone.0, worker.id);
    trains_from(&cluster, job, gone.1 + 100).await;
    let (shard, process) = cluster.task_process(job, "ps-1").await;
    cluster.kill(&process);
    let said = told(&cluster, job, "the copy", |event| match event {
        Event::Note { message } if message.contains("continues as it from its copy") => {
            Some(message.clone())
        }
        _ => None,
    })
    .await;
    let expected = "PS shard 1 is lost; PS shard 0 continues as it";
    assert!(said.starts_with(expected), "{said}");
    let there = present(&cluster, job, 2).await;
    assert!(
        there.iter().all(|task| task.id != shard.id),
        "another one takes its place: {there:?}"
    );

    let done = cluster.succeeded(job).await;
    let tasks = cluster.client().tasks(job).await.expect("tasks");
    for survivor in ["worker-0", "worker-1", "ps-0"] {
        let count = tasks.iter().filter(|task| task.name == survivor).count();
        assert_eq!(count, 1, "{survivor} was never started again");
    }
    assert_eq!(done.failures, 2, "both are charged to the job");
    went_on_without_a_restart(&cluster, job).await;
    learned_as_well(&done, &alone);
    no_gpu_was_held_twice(&cluster, &[alone.id, job]).await;
    every_round_replays(&cluster);
    cluster.down();
}

/// Document of two workers and a shard. No node has room for a worker and a shard at once; each has
/// room for three shards.
async fn apart(cluster: &TestCluster, name: &str) -> String {
    let nodes = cluster.client().nodes().await.expect("nodes");
    let least = nodes.iter().map(|node| node.capacity.cpu_milli).min();
    let percent = least.expect("nodes") / 100;
    let (worker, shard) = (percent * 70, percent * 31);
    document(name, (2, 2), (1, 1), STEPS)
        + &format!(
            "resources: {{ worker: {{ cpu_milli: {worker} }}, ps_shard: {{ cpu_milli: {shard} }} }}\n"
        )
}

async fn succeeded(cluster: &TestCluster, document: &str) -> JobView {
    let job = cluster.submit(document).await.id;
    cluster.succeeded(job).await
}

fn with_replica(name: &str, workers: (u32, u32)) -> String {
    document(name, workers, (2, 2), STEPS) + "exchange: { shard_replicas: 1 }\n"
}

async fn trains_from(cluster: &TestCluster, job: JobId, step: u64) {
    cluster
        .until(job, "some training", |job| {
            job.progress.as_ref().is_some_and(|p| p.step >= step)
        })
        .await;
}

async fn scale(cluster: &TestCluster, job: JobId, ps_shards: u32) {
    let change = JobChange {
        ps_shards: Some(Range {
            min: ps_shards,
            max: ps_shards,
        }),
        ..JobChange::default()
    };
    let changed = cluster.client().edit(job, &change).await;
    changed.expect("its owner may change it");
}

/// Waits until the history contains an event that `pick` accepts.
async fn told<T>(
    cluster: &TestCluster,
    job: JobId,
    what: &str,
    pick: impl Fn(&Event) -> Option<T>,
) -> T {
    loop {
        // Fails the story if it takes too long or the job has ended.
        cluster
            .until(job, what, |job| job.phase == JobPhase::Running)
            .await;
        let history = cluster.history(job).await;
        if let Some(found) = history.iter().rev().find_map(|entry| pick(&entry.event)) {
            return found;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// Step from which the tasks train with this number of shards; leaving shards have handed over by
/// then.
async fn resized(cluster: &TestCluster, job: JobId, shards: u32) -> u64 {
    told(
        cluster,
        job,
        "another number of shards",
        |event| match event {
            Event::Resized {
                step, ps_shards, ..
            } if *ps_shards == shards => Some(*step),
            _ => None,
        },
    )
    .await
}

/// All shards that have not ended.
async fn shards(cluster: &TestCluster, job: JobId) -> Vec<TaskView> {
    let mut tasks = cluster.client().tasks(job).await.expect("tasks");
    tasks.retain(|task| task.name.starts_with("ps-") && task.released_at.is_none());
    tasks
}

/// Waits until there are `count` shards, all up.
async fn present(cluster: &TestCluster, job: JobId, count: usize) -> Vec<TaskView> {
    loop {
        cluster
            .until(job, "its shards", |job| job.phase == JobPhase::Running)
            .await;
        let there = shards(cluster, job).await;
        if there.len() == count && there.iter().all(|task| task.state == TaskState::Running) {
            return there;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

async fn went_on_without_a_restart(cluster: &TestCluster, job: JobId) {
    assert_eq!(cluster.resumed_at(job).await, [0_u64; 0]);
    training_is_continuous(cluster, job, STEPS).await;
}

fn accuracy(job: &JobView) -> f64 {
    let progress = job.progress.as_ref().expect("progress");
    progress.test_accuracy.expect("evaluated")
}

fn learned_as_well(done: &JobView, alone: &JobView) {
    let (with, without) = (accuracy(done), accuracy(alone));
    println!("accuracy {with} disturbed, {without} undisturbed");
    assert!(
        (with - without).abs() <= TOLERANCE,
        "accuracy {with} disturbed, {without} undisturbed"
    );
}
