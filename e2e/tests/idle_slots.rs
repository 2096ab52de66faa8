//! Slots that are kept for the turn of a large job are used until it begins: short jobs run on them, and an elastic job is not stopped for
//! slots that it would not get.

use muster_e2e::cluster::{Cluster, Options};
use muster_e2e::runtime::of_processes;
use muster_e2e::story::{document, every_round_replays};
use muster_model::event::Event;
use muster_model::id::JobId;
use muster_model::job::{AfterStop, JobPhase};
use muster_model::view::JobView;
use std::time::Duration;

const NODES: Options = Options { nodes: 3, slots: 2 };
const QUANTUM_MS: u32 = 8_000;
/// Between two looks at the cluster.
const STEP: Duration = Duration::from_millis(200);
/// Three quanta and more, so that the line turns; the reported loop repeated within one.
const LOOKS: usize = 130;
/// A short job every four seconds.
const LOOKS_PER_SHORT: usize = 20;
/// Six seconds. A slot is lent until an eighth of a quantum before a turn; then tasks obey, and rounds follow within a second each.
const MOST_IDLE_LOOKS: usize = 30;

#[tokio::test]
async fn short_jobs_run_on_slots_kept_for_a_turn() {
    of_processes("jobs in pods take no turns");
    let mut cluster = Cluster::start_slicing(NODES, QUANTUM_MS).await;
    let sleeper = cluster.submit(&program("sleeper", 6, 300)).await.id;
    cluster.until(sleeper, "its start", runs).await;
    // Its turn comes by its wait, and the sleeper is the first in the line from then on.
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

/// Slots that no task holds, as `GET /nodes` tells.
async fn free(cluster: &Cluster) -> usize {
    let nodes = cluster.client().nodes().await.expect("nodes");
    let gpus = nodes.iter().flat_map(|node| &node.gpus);
    gpus.filter(|gpu| gpu.job.is_none()).count()
}

/// Why one of these waits in the queue, if one does.
async fn waiting(cluster: &Cluster, jobs: &[JobId]) -> Option<String> {
    for job in jobs {
        let view = cluster.client().job(*job).await.expect("there");
        if view.phase == JobPhase::Queued {
            return Some(format!("{}: {:?}", view.name, view.waiting));
        }
    }
    None
}

/// Why a job was told to stop and to start again.
async fn stops(cluster: &Cluster, job: JobId) -> Vec<String> {
    let history = cluster.history(job).await;
    let stops = history.into_iter().filter_map(|entry| match entry.event {
        Event::JobStopRequested {
            then: AfterStop::Move { .. } | AfterStop::Requeue { .. },
            why,
        } => Some(why),
        _ => None,
    });
    stops.collect()
}
