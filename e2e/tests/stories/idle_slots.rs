//! Slots that are reserved for the slice of a large job are used until it begins. Short jobs run on
//! them, and an elastic job is not stopped for slots that it would not get.

use muster_e2e::cluster::{TestCluster, TestClusterOptions};
use muster_e2e::runtime::of_processes;
use muster_e2e::story::{document, every_round_replays};
use muster_model::event::Event;
use muster_model::id::JobId;
use muster_model::job::{AfterStop, JobPhase};
use muster_model::view::JobView;
use std::time::Duration;

const NODES: TestClusterOptions = TestClusterOptions { nodes: 3, slots: 2 };
const QUANTUM_MS: u32 = 8_000;
/// Interval of polls.
const STEP: Duration = Duration::from_millis(200);
/// More than three quanta, so that the rotation advances; the reported loop repeated within one.
const LOOKS: usize = 130;
/// One short job every four seconds.
const LOOKS_PER_SHORT: usize = 20;
/// Six seconds. A slot is lent until an eighth of a quantum before a slice. Then tasks follow, and
/// rounds start within a second each.
const MOST_IDLE_LOOKS: usize = 30;

#[tokio::test]
async fn short_jobs_run_on_slots_reserved_for_slice() {
    of_processes("jobs in pods take no turns");
    let mut cluster = TestCluster::start_slicing(NODES, QUANTUM_MS).await;
    let sleeper = cluster.submit(&program("sleeper", 6, 300)).await.id;
    cluster.until(sleeper, "its start", runs).await;
    // It gets its slice by its wait, and from then on the sleeper is first in the rotation.
    let elastic = document("elastic", (1, 4), (1, 1), 4_000);
    let elastic = cluster.submit(&elastic).await.id;
    cluster.until(elastic, "its turn", runs).await;

    let mut jobs = vec![sleeper, elastic];
    let mut idle_looks = 0;
    for look in 0..LOOKS {
        if look % LOOKS_PER_SHORT == 0 {
            let text = program(&format!("short-{}", look / LOOKS_PER_SHORT), 1, 2);
            jobs.push(cluster.submit(&text).await.id);
        }
        let free = free(&cluster).await;
        let waits = waiting(&cluster, &jobs[2..]).await;
        let is_idle = free > 0 && waits.is_some();
        idle_looks = if is_idle { idle_looks + 1 } else { 0 };
        assert!(
            idle_looks <= MOST_IDLE_LOOKS,
            "{free} slots are free at {idle_looks} looks in a row: {waits:?}"
        );
        tokio::time::sleep(STEP).await;
    }
    let stops = stops(&cluster, elastic).await;
    assert!(stops.len() <= 1, "{stops:?}");
    let lost = cluster.client().job(sleeper).await.expect("there");
    assert_eq!(
        (lost.failures, lost.revision),
        (0, 1),
        "it was not started again"
    );
    every_round_replays(&cluster);
    cluster.down();
}

fn program(name: &str, workers: u32, seconds: u32) -> String {
    format!(
        "version: muster/v1\nname: {name}\ncommand: {{ argv: [sleep, '{seconds}'] }}\n\
         scale: {{ workers: {{ min: {workers}, max: {workers} }} }}\n"
    )
}

fn runs(job: &JobView) -> bool {
    job.phase == JobPhase::Running
}

/// Number of slots that no task holds, according to `GET /nodes`.
async fn free(cluster: &TestCluster) -> usize {
    let nodes = cluster.client().nodes().await.expect("nodes");
    let gpus = nodes.iter().flat_map(|node| &node.gpus);
    gpus.filter(|gpu| gpu.job.is_none()).count()
}

/// Wait reason of the first of these jobs that is queued.
async fn waiting(cluster: &TestCluster, jobs: &[JobId]) -> Option<String> {
    for job in jobs {
        let view = cluster.client().job(*job).await.expect("there");
        if view.phase == JobPhase::Queued {
            return Some(format!("{}: {:?}", view.name, view.waiting));
        }
    }
    None
}

/// Reasons of the job's stops with a later start.
async fn stops(cluster: &TestCluster, job: JobId) -> Vec<String> {
    let history = cluster.history(job).await;
    let stops = history.into_iter().filter_map(|entry| match entry.event {
        Event::JobStopRequested {
            then: AfterStop::Move { .. } | AfterStop::Requeue { .. },
            why,
            ..
        } => Some(why),
        _ => None,
    });
    stops.collect()
}
