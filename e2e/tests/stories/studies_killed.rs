//! A study of sixty small trainings whose scheduler is killed fifty times. The trials, the
//! promotions and the best result equal those of an undisturbed run, and no rung is trained twice.
//! It takes minutes, so `make bench-kills` runs it.

use muster_e2e::cluster::{OUTLASTS_A_SCHEDULER_MS, TestCluster, TestClusterOptions};
use muster_e2e::story::no_gpu_was_held_twice;
use muster_e2e::study::{created, finished, sequence, trials};
use muster_model::id::JobId;
use muster_model::job::JobPhase;
use muster_model::view::TrialView;
use serde_json::{Value, json};
use std::time::Duration;

const NODES: TestClusterOptions = TestClusterOptions { nodes: 2, slots: 2 };
const TRIALS: u32 = 60;
const KILLS: u32 = 50;
const PATIENCE: Duration = Duration::from_secs(900);

/// Trainings of a fraction of a second per epoch.
fn document(name: &str) -> Value {
    json!({
        "version": "muster/v1", "kind": "study", "name": name,
        "search": {
            "objectives": [{"metric": "test_accuracy", "goal": "maximize"}],
            "parameters": [
                {"name": "rate", "field": "engine.optimizer.learning_rate", "type": "float", "low": 0.0001, "high": 0.3, "log": true},
                {"name": "width", "field": "engine.model.hidden[0]", "type": "int", "low": 16, "high": 64, "step": 16},
            ],
            "searcher": {"kind": "tpe"},
            "stopper": {"kind": "asha", "min": 1, "eta": 3},
            "budget": {"max": 9, "unit": "epochs"},
            "trials": TRIALS, "concurrency": 4, "seed": 11, "reproducible": true,
        },
        "job": {
            "engine": {
                "model": {"kind": "mlp", "hidden": [16]},
                "dataset": {"name": "fashion-mnist", "train_limit": 1280, "test_limit": 500},
                "optimizer": {"kind": "sgd"}, "batch": 128,
            },
        },
    })
}

/// When to kill the running scheduler: after a number of polls, possibly before it leads, or after
/// a number of events.
enum Until {
    Looks(u64),
    Events(u64),
}

/// Kills one scheduler after the other, at times from Knuth's generator.
struct Killer {
    dice: u64,
    kills: u32,
    until: Until,
}

impl Killer {
    fn new() -> Self {
        Self {
            dice: 7,
            kills: 0,
            until: Until::Events(3),
        }
    }

    /// 1 to `most`.
    fn draw(&mut self, most: u64) -> u64 {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005);
        self.dice = self.dice.wrapping_add(1_442_695_040_888_963_407);
        1 + (self.dice >> 33) % most
    }

    /// One poll of a study with this number of events.
    fn look(&mut self, cluster: &TestCluster, events: u64) {
        let schedulers = cluster.running("muster-scheduler");
        let Some(victim) = schedulers.first().filter(|_| self.kills < KILLS) else {
            return;
        };
        match &mut self.until {
            Until::Looks(left) if *left > 0 => {
                *left -= 1;
                return;
            }
            Until::Events(wanted) if events < *wanted => return,
            Until::Looks(_) | Until::Events(_) => {}
        }
        cluster.kill(victim);
        self.kills += 1;
        self.until = match self.draw(3) {
            1 => Until::Looks(self.draw(8)),
            _ => Until::Events(events + self.draw(4)),
        };
    }
}

#[tokio::test]
#[ignore = "takes minutes: make bench-kills"]
async fn study_of_sixty_trials_is_same_under_fifty_kills() {
    let mut cluster = TestCluster::start_leasing(NODES, OUTLASTS_A_SCHEDULER_MS).await;
    let calm = created(&cluster, &document("calm")).await;
    let calm = finished(&cluster, calm, PATIENCE, |_| {}).await;
    let hit = created(&cluster, &document("hit")).await;
    let mut killer = Killer::new();
    let hit = finished(&cluster, hit, PATIENCE, |study| {
        killer.look(&cluster, study.events);
    })
    .await;
    println!(
        "{TRIALS} trials, {} kills, {} events",
        killer.kills, hit.events
    );
    assert_eq!(killer.kills, KILLS, "of {} events", calm.events);
    let (calm, hit) = (
        trials(&cluster, calm.id).await,
        trials(&cluster, hit.id).await,
    );
    assert_eq!(sequence(&calm), sequence(&hit));
    for trials in [&calm, &hit] {
        each_rung_was_trained_once(&cluster, trials).await;
    }
    cluster.down();
}

async fn each_rung_was_trained_once(cluster: &TestCluster, trials: &[TrialView]) {
    assert_eq!(trials.len(), TRIALS as usize);
    let mut jobs: Vec<JobId> = Vec::new();
    for trial in trials {
        let id = trial.job_id.expect("a trial is a job");
        assert!(!jobs.contains(&id), "two trials are one job");
        jobs.push(id);
        let job = cluster.client().job(id).await.expect("its job");
        assert_eq!(job.phase, JobPhase::Succeeded);
        if job.revision != u64::from(trial.rung) + 1 {
            let history = cluster.history(id).await;
            panic!("{} starts of {trial:#?}: {history:#?}", job.revision);
        }
        let curve: Vec<u64> = trial.curve.iter().map(|point| point.step).collect();
        assert_eq!(curve, (1..=trial.budget).collect::<Vec<_>>());
    }
    no_gpu_was_held_twice(cluster, &jobs).await;
}
