//! SIGKILL of every part, one at a time, during a run: the job still succeeds and no acknowledged
//! work is lost. No GPU slot is held twice, and no process is left behind.

use muster_e2e::cluster::{TestCluster, TestClusterOptions};
use muster_e2e::processes::OsProcess;
use muster_e2e::story::{
    CHECKPOINT_EVERY, document, no_gpu_was_held_twice, training_is_continuous,
};
use muster_model::id::JobId;

const NODES: TestClusterOptions = TestClusterOptions { nodes: 2, slots: 1 };
const STEPS: u64 = 600;
/// Late enough that a checkpoint was written, early enough that much work remains.
const HIT_AT: u64 = 120;

#[tokio::test]
async fn job_survives_kill_of_api_server() {
    let mut story = Story::begin().await;
    let victim = story.only("muster-api");
    story.kill(&victim);
    story.ends_well(Restarts::None).await;
}

#[tokio::test]
async fn job_survives_kill_of_scheduler() {
    let mut story = Story::begin().await;
    let victim = story.only("muster-scheduler");
    story.kill(&victim);
    // The nodes keep their tasks and dial in again.
    story.ends_well(Restarts::None).await;
}

#[tokio::test]
async fn job_survives_kill_of_executor() {
    let mut story = Story::begin().await;
    let victim = story.cluster.running("muster-executor").remove(0);
    story.kill(&victim);
    // Its tasks live on under their shims, and the next executor adopts them.
    story.ends_well(Restarts::None).await;
}

#[tokio::test]
async fn job_survives_kill_of_worker() {
    let mut story = Story::begin().await;
    let (_, victim) = story.cluster.task_process(story.job, "worker-1").await;
    story.kill(&victim);
    story
        .ends_well(Restarts::FromCheckpoint { charged: true })
        .await;
}

#[tokio::test]
async fn job_continues_without_killed_worker() {
    let cluster = TestCluster::start(NODES).await;
    let mut story = Story::of(cluster, (1, 2)).await;
    let (_, victim) = story.cluster.task_process(story.job, "worker-1").await;
    story.kill(&victim);
    story.ends_well(Restarts::OfOneTask).await;
}

#[tokio::test]
async fn job_survives_kill_of_coordinator() {
    let mut story = Story::begin().await;
    let (_, victim) = story.cluster.task_process(story.job, "worker-0").await;
    story.kill(&victim);
    story
        .ends_well(Restarts::FromCheckpoint { charged: true })
        .await;
}

#[tokio::test]
async fn job_survives_kill_of_ps_shard() {
    let mut story = Story::begin().await;
    let (_, victim) = story.cluster.task_process(story.job, "ps-0").await;
    story.kill(&victim);
    story
        .ends_well(Restarts::FromCheckpoint { charged: true })
        .await;
}

#[tokio::test]
async fn job_survives_kill_of_postgres() {
    // On a busy machine a restart of Postgres takes longer than the short leases of the other
    // stories.
    let cluster = TestCluster::start_leasing(NODES, 10_000).await;
    let mut story = Story::on(cluster).await;
    let victim = story
        .cluster
        .processes()
        .into_iter()
        .find(|process| process.program == "postgres" && process.mentions("-D"))
        .expect("Postgres runs");
    story.kill(&victim);
    story.ends_well(Restarts::None).await;
}

/// A whole node: executor, shims and tasks die at the same time, and the executor is restarted.
#[tokio::test]
async fn job_survives_kill_of_whole_node() {
    let mut story = Story::begin().await;
    let (task, _) = story.cluster.task_process(story.job, "worker-1").await;
    let folder = format!("nodes/{}", task.node);
    let mut victims: Vec<OsProcess> = story
        .cluster
        .processes()
        .into_iter()
        .filter(|process| process.mentions(&folder))
        .collect();
    // Not in the order of their ids: a shim that outlives its task briefly would report its end.
    victims.sort_by_key(|process| !process.arguments.iter().any(|word| word == "shim"));
    assert!(victims.len() >= 3, "executor, shim and task: {victims:?}");
    for victim in &victims {
        story.cluster.kill(victim);
    }
    story
        .ends_well(Restarts::FromCheckpoint { charged: false })
        .await;
}

/// The whole cluster at once, as in a power failure; then `muster up` on the same folder.
#[tokio::test]
async fn job_survives_kill_of_whole_cluster() {
    let mut story = Story::begin().await;
    for victim in story.cluster.processes() {
        story.cluster.kill(&victim);
    }
    story.cluster.up_again().await;
    story
        .ends_well(Restarts::FromCheckpoint { charged: false })
        .await;
}

/// Allowed effect of the kill on the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Restarts {
    /// Its tasks are not affected.
    None,
    /// Its other tasks continue.
    OfOneTask,
    /// It returns to a checkpoint, at most one interval back. `charged`: a failed task is charged
    /// to its retries.
    FromCheckpoint { charged: bool },
}

struct Story {
    cluster: TestCluster,
    job: JobId,
    /// State shown just before the kill.
    acknowledged: Acknowledged,
}

#[derive(Default)]
struct Acknowledged {
    step: u64,
    events: Vec<String>,
}

impl Story {
    /// Starts a job with two workers on two nodes and two PS shards, and waits until it is well
    /// under way.
    async fn begin() -> Self {
        Self::on(TestCluster::start(NODES).await).await
    }

    async fn on(cluster: TestCluster) -> Self {
        Self::of(cluster, (2, 2)).await
    }

    async fn of(cluster: TestCluster, workers: (u32, u32)) -> Self {
        let job = cluster
            .submit(&document("hit", workers, (2, 2), STEPS))
            .await
            .id;
        let view = cluster
            .until(job, "the step at which it is hit", |job| {
                job.progress.as_ref().is_some_and(|p| p.step >= HIT_AT)
            })
            .await;
        let events = cluster
            .history(job)
            .await
            .into_iter()
            .map(|event| event.cursor)
            .collect();
        let acknowledged = Acknowledged {
            step: view.progress.map_or(0, |p| p.step),
            events,
        };
        Self {
            cluster,
            job,
            acknowledged,
        }
    }

    fn only(&self, program: &str) -> OsProcess {
        let mut found = self.cluster.running(program);
        assert_eq!(found.len(), 1, "{program} runs once: {found:?}");
        found.remove(0)
    }

    fn kill(&self, victim: &OsProcess) {
        self.cluster.kill(victim);
    }

    async fn ends_well(&mut self, restarts: Restarts) {
        let cluster = &self.cluster;
        let done = cluster.succeeded(self.job).await;
        assert_eq!(
            done.progress.as_ref().map(|progress| progress.step),
            Some(STEPS)
        );
        let history: Vec<String> = cluster
            .history(self.job)
            .await
            .into_iter()
            .map(|event| event.cursor)
            .collect();
        assert!(
            history.starts_with(&self.acknowledged.events),
            "every event that was shown is still there, in its place"
        );
        let resumed = cluster.resumed_at(self.job).await;
        match restarts {
            Restarts::None => {
                assert_eq!(resumed, [0_u64; 0], "it was never restarted");
                assert_eq!(done.failures, 0);
            }
            Restarts::OfOneTask => {
                assert_eq!(resumed, [0_u64; 0], "the others were never restarted");
                assert_eq!(done.failures, 1);
                let history = cluster.history(self.job).await;
                for kind in ["peer_gone", "resized"] {
                    let told = history.iter().any(|entry| entry.event.kind() == kind);
                    assert!(told, "{kind}: {history:?}");
                }
            }
            Restarts::FromCheckpoint { charged } => {
                let from = *resumed.first().expect("it was restarted");
                let lost = self.acknowledged.step.saturating_sub(from);
                assert!(
                    lost <= CHECKPOINT_EVERY,
                    "it went back {lost} steps, to {from}"
                );
                if (done.failures > 0) != charged {
                    cluster.print_history(self.job).await;
                    panic!("{} failures were charged", done.failures);
                }
            }
        }
        training_is_continuous(cluster, self.job, STEPS).await;
        no_gpu_was_held_twice(cluster, &[self.job]).await;
        let model = cluster
            .checkpoints()
            .join(done.model_path.expect("a model"));
        assert!(model.is_file(), "{} is there", model.display());
        self.cluster.down();
    }
}
