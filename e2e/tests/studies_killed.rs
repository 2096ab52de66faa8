//! Sixty small trainings of a study whose scheduler is killed fifty times: the sequence of trials, promotions and the best result are
//! those of an undisturbed run, and no rung is trained twice. It takes minutes, so `make bench-studies` runs it.

use muster_e2e::cluster::{Cluster, Options};
use muster_e2e::story::no_gpu_was_held_twice;
use muster_e2e::study::{created, finished, sequence, trials};
use muster_model::id::JobId;
use muster_model::job::JobPhase;
use muster_model::view::TrialView;
use serde_json::{Value, json};
use std::time::Duration;

const NODES: Options = Options { nodes: 2, slots: 2 };
const TRIALS: u32 = 60;
const KILLS: u32 = 50;
/// Looks are a fifth of a second apart.
const PATIENCE: Duration = Duration::from_secs(900);

/// Trainings of a fraction of a second an epoch.
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

/// How many looks until the next kill: one to six, by Knuth's generator.
struct Dice(u64);

impl Dice {
    fn looks(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        1 + (self.0 >> 33) % 6
    }
}

#[tokio::test]
#[ignore = "takes minutes: make bench-studies"]
async fn sixty_trials_and_fifty_kills_come_to_what_they_come_to_undisturbed() {
    let mut cluster = Cluster::start(NODES).await;
    let calm = created(&cluster, &document("calm")).await;
    finished(&cluster, calm, PATIENCE, || {}).await;
    let hit = created(&cluster, &document("hit")).await;
    let mut dice = Dice(7);
    let (mut kills, mut left) = (0, dice.looks());
    finished(&cluster, hit, PATIENCE, || {
        left -= 1;
        if left > 0 {
            return;
        }
        left = dice.looks();
        if let Some(victim) = cluster.running("muster-scheduler").first() {
            cluster.kill(victim);
            kills += 1;
        }
    })
    .await;
    let (calm, hit) = (trials(&cluster, calm).await, trials(&cluster, hit).await);
    println!("{TRIALS} trials, {kills} kills");
    assert!(kills >= KILLS, "it was killed {kills} times");
    assert_eq!(sequence(&calm), sequence(&hit));
    for trials in [&calm, &hit] {
        each_rung_was_trained_once(&cluster, trials).await;
    }
    cluster.down();
}

async fn each_rung_was_trained_once(cluster: &Cluster, trials: &[TrialView]) {
    assert_eq!(trials.len(), TRIALS as usize);
    let mut jobs: Vec<JobId> = Vec::new();
    for trial in trials {
        let id = trial.job_id.expect("a trial is a job");
        assert!(!jobs.contains(&id), "two trials are one job");
        jobs.push(id);
        let job = cluster.client().job(id).await.expect("its job");
        assert_eq!(job.phase, JobPhase::Succeeded);
        assert_eq!(job.revision, u64::from(trial.rung) + 1, "{trial:#?}");
        let curve: Vec<u64> = trial.curve.iter().map(|point| point.step).collect();
        assert_eq!(curve, (1..=trial.budget).collect::<Vec<_>>());
    }
    no_gpu_was_held_twice(cluster, &jobs).await;
}
