//! Defragmentation: four nodes with one free slot each, and a gang of four that needs them in
//! pairs. Running jobs move to reserved places and continue there from their checkpoints, also
//! after a kill of a daemon.

use muster_e2e::cluster::{TestCluster, TestClusterOptions};
use muster_e2e::story::{document, every_round_replays, no_gpu_was_held_twice};
use muster_model::event::Event;
use muster_model::id::JobId;
use muster_model::job::{AfterStop, JobPhase, Seat};
use muster_model::view::JobView;
use std::collections::BTreeSet;
use std::time::Duration;

const NODES: TestClusterOptions = TestClusterOptions { nodes: 4, slots: 2 };
/// More than any story waits for.
const STEPS: u64 = 20_000;

#[tokio::test]
async fn defragmentation_frees_nodes_for_waiting_gang() {
    let mut story = Story::begin("fifo").await;
    story.ends_well().await;
    let asked = story.cluster.muster().args(["explain", "gang"]).output();
    assert!(asked.expect("muster runs").status.success());
    every_round_replays(&story.cluster);
    story.cluster.down();
}

#[tokio::test]
async fn defragmentation_works_under_policy_that_gathers_jobs() {
    let mut story = Story::begin("muster").await;
    story.ends_well().await;
    story.cluster.down();
}

#[tokio::test]
async fn moves_survive_kill_of_scheduler() {
    let mut story = Story::begin("fifo").await;
    story.until_somebody_moves().await;
    for victim in story.cluster.running("muster-scheduler") {
        story.cluster.kill(&victim);
    }
    story.ends_well().await;
    story.cluster.down();
}

#[tokio::test]
async fn moves_survive_kill_of_executor() {
    let mut story = Story::begin("fifo").await;
    story.until_somebody_moves().await;
    let victim = story.cluster.running("muster-executor").remove(0);
    story.cluster.kill(&victim);
    story.ends_well().await;
    story.cluster.down();
}

struct Story {
    cluster: TestCluster,
    small: Vec<JobId>,
    gang: JobId,
}

impl Story {
    /// Starts one small job on every node, beside a free slot.
    async fn begin(policy: &'static str) -> Self {
        let cluster = TestCluster::start_under(NODES, policy, 0).await;
        let (mut small, mut beside) = (Vec::new(), Vec::new());
        for number in 0..NODES.nodes {
            let text = document(&format!("small-{number}"), (1, 1), (1, 1), STEPS);
            small.push(cluster.submit(&text).await.id);
            runs(&cluster, small[small.len() - 1]).await;
            let text = format!(
                "version: muster/v1\nname: beside-{number}\ncommand: {{ argv: [sleep, '900'] }}\n"
            );
            beside.push(cluster.submit(&text).await.id);
            runs(&cluster, beside[beside.len() - 1]).await;
        }
        for job in &beside {
            cluster.client().cancel(*job).await.expect("its owner may");
        }
        for job in &beside {
            cluster
                .until(*job, "its end", |job| job.phase == JobPhase::Cancelled)
                .await;
        }
        let mut nodes = BTreeSet::new();
        for job in &small {
            let tasks = cluster.client().tasks(*job).await.expect("tasks");
            let held = tasks.into_iter().filter(|task| !task.gpus.is_empty());
            nodes.extend(held.map(|task| task.node));
        }
        assert_eq!(nodes.len(), 4, "a slot is free on every node");
        let text = "version: muster/v1\nname: gang\ncommand: { argv: [sleep, '5'] }\n\
            scale: { workers: { min: 2, max: 2 } }\nresources: { worker: { gpus: 2 } }\n";
        let gang = cluster.submit(text).await.id;
        Self {
            cluster,
            small,
            gang,
        }
    }

    /// Destination and reason of each move.
    async fn moves(&self) -> Vec<(JobId, Vec<Seat>, String)> {
        let mut moves = Vec::new();
        for job in &self.small {
            for entry in self.cluster.history(*job).await {
                if let Event::JobStopRequested {
                    then: AfterStop::Move { to, .. },
                    why,
                    ..
                } = entry.event
                {
                    moves.push((*job, to, why));
                }
            }
        }
        moves
    }

    async fn until_somebody_moves(&self) {
        while self.moves().await.is_empty() {
            let gang = self.cluster.client().job(self.gang).await;
            assert!(gang.is_ok_and(|gang| gang.phase == JobPhase::Queued));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Checks that the gang succeeds, and that every moved job trains at its destination.
    async fn ends_well(&mut self) {
        self.cluster.succeeded(self.gang).await;
        let moves = self.moves().await;
        assert!(moves.len() >= 2, "{moves:?}");
        for (job, to, why) in &moves {
            assert!(why.contains("moves from"), "{why}");
            let goes_on = |job: &JobView| job.phase == JobPhase::Running && job.revision > 1;
            let view = self.cluster.until(*job, "its going on", goes_on).await;
            assert_eq!(view.failures, 0);
            let tasks = self.cluster.client().tasks(*job).await.expect("tasks");
            let second = tasks.iter().filter(|task| task.revision == 2);
            let there: BTreeSet<(String, Vec<u32>)> = second
                .map(|task| (task.name.clone(), task.gpus.clone()))
                .collect();
            let told = to
                .iter()
                .map(|seat| (seat.role.to_string(), seat.gpus.clone()));
            assert_eq!(there, told.collect(), "{tasks:?} {to:?}");
            let resumed = self.cluster.history(*job).await;
            let resumed = resumed
                .iter()
                .any(|entry| matches!(entry.event, Event::Resumed { .. }));
            assert!(resumed, "it goes on from its checkpoint");
        }
        for job in &self.small {
            let view = self.cluster.client().job(*job).await.expect("there");
            assert!(!view.phase.is_terminal(), "{} is lost", view.name);
            let before = view.progress.map_or(0, |progress| progress.step);
            let trains = |job: &JobView| {
                job.progress
                    .as_ref()
                    .is_some_and(|progress| progress.step > before)
            };
            self.cluster.until(*job, "its training", trains).await;
        }
        let mut all = self.small.clone();
        all.push(self.gang);
        no_gpu_was_held_twice(&self.cluster, &all).await;
    }
}

async fn runs(cluster: &TestCluster, job: JobId) {
    cluster
        .until(job, "its start", |job| job.phase == JobPhase::Running)
        .await;
}
