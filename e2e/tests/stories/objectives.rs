//! Users' programs that are judged by metrics of their own: in studies, and at the target of a job.

use muster_e2e::cluster::{PATIENCE, TestCluster, TestClusterOptions};
use muster_e2e::story::{log, no_gpu_was_held_twice};
use muster_e2e::study::{created, finished, trials};
use muster_model::event::Event;
use muster_model::id::JobId;
use muster_model::job::JobPhase;
use muster_model::study::TrialPhase;
use muster_model::view::TrialView;
use serde_json::{Value, json};

const NODE: TestClusterOptions = TestClusterOptions { nodes: 1, slots: 3 };
const METRIC: &str = "val/f1";
/// The best of the tried rates.
const BEST: f64 = 0.7;

/// Logs sixty values within each epoch, faster than they are reported. Only the last one is true.
const ASHA: &str = r#"
import json, os, pathlib
rate, epochs = float(os.environ["RATE"]), int(os.environ["EPOCHS"])
place = pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"]) / "state.json"
epoch = json.loads(place.read_text()) if place.exists() else 0
while epoch < epochs:
    for i in range(60):
        print(f"muster: step={100 * epoch + i} epoch={epoch + 0.1} val/f1={0.99 - rate / 2}")
    epoch += 1
    f1 = 1.0 - abs(rate - 0.7) - 0.1 / epoch
    print(f"muster: step={100 * epoch - 1} epoch={epoch} val/f1={f1} loss={1 - f1}", flush=True)
    place.write_text(json.dumps(epoch))
"#;

/// Trains a weight, which only the checkpoint carries from one start to the next.
const POPULATION: &str = r#"
import json, os, pathlib
rate, epochs = float(os.environ["RATE"]), int(os.environ["EPOCHS"])
place = pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"]) / "state.json"
epoch, weight = json.loads(place.read_text()) if place.exists() else (0, 0.0)
print(f"begins at {epoch}")
while epoch < epochs:
    epoch += 1
    weight += 0.25 - (rate - 0.5) ** 2
    print(f"muster: step={epoch} epoch={epoch} val/f1={weight}")
    place.write_text(json.dumps([epoch, weight]))
"#;

/// Raises its metric until it is asked to stop.
const TARGET: &str = r#"
import signal, sys, time
def stop(*_):
    print("saw SIGTERM", flush=True)
    sys.exit(3)
signal.signal(signal.SIGTERM, stop)
for step in range(1, 100_000):
    print(f"muster: step={step} val/f1={step / 100}", flush=True)
    time.sleep(0.02)
"#;

fn asha() -> Value {
    json!({
        "version": "muster/v1", "kind": "study", "name": "own-asha",
        "search": {
            "objectives": [{"metric": METRIC, "goal": "maximize"}],
            "parameters": [{
                "name": "rate", "field": "command.env.RATE", "type": "categorical",
                "choices": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, BEST, 0.8, 0.9],
            }],
            "searcher": {"kind": "grid"},
            "stopper": {"kind": "asha", "min": 1, "eta": 3},
            "budget": {"max": 9, "unit": "epochs", "field": "command.env.EPOCHS"},
            "trials": 9, "concurrency": 3, "reproducible": true,
        },
        "job": {"command": {"argv": ["python3", "train.py"], "files": {"train.py": ASHA}}, "retries": 0},
    })
}

fn population() -> Value {
    json!({
        "version": "muster/v1", "kind": "study", "name": "own-pbt",
        "search": {
            "objectives": [{"metric": METRIC, "goal": "maximize"}],
            "parameters": [{"name": "rate", "field": "command.env.RATE", "type": "float", "low": 0.0, "high": 1.0}],
            "searcher": {"kind": "sobol"},
            "stopper": {"kind": "pbt", "population": 4, "interval": 1},
            "budget": {"max": 4, "unit": "epochs", "field": "command.env.EPOCHS"},
            "trials": 8, "concurrency": 2, "seed": 3, "reproducible": true,
        },
        "job": {"command": {"argv": ["python3", "train.py"], "files": {"train.py": POPULATION}}, "retries": 0},
    })
}

fn rate(trial: &TrialView) -> f64 {
    trial.parameters["rate"].as_f64().expect("a number")
}

/// True value after this many epochs.
fn f1(rate: f64, epoch: u64) -> f64 {
    1.0 - (rate - BEST).abs() - 0.1 / epoch as f64
}

#[tokio::test]
async fn asha_finds_the_best_trial_by_a_programs_metric() {
    let mut cluster = TestCluster::start(NODE).await;
    let id = created(&cluster, &asha()).await;
    let study = finished(&cluster, id, PATIENCE, |_| {}).await;
    let trials = trials(&cluster, id).await;
    let best = trials.iter().find(|trial| trial.best).expect("a best one");
    assert_eq!(rate(best), BEST, "{trials:#?}");
    assert_eq!((best.state, best.budget), (TrialPhase::Completed, 9));
    let stopped = trials
        .iter()
        .filter(|trial| trial.state == TrialPhase::Stopped);
    assert!(stopped.count() >= 5, "{trials:#?}");
    for trial in &trials {
        has_exact_values(&cluster, trial).await;
    }
    let jobs: Vec<JobId> = trials.iter().filter_map(|trial| trial.job_id).collect();
    no_gpu_was_held_twice(&cluster, &jobs).await;
    let shown = cluster.run(&["study", "show", "own-asha"]);
    assert!(shown.contains(&format!("{METRIC} 0.9889 at 9")), "{shown}");
    assert_eq!(study.best[0].number, best.number);
    cluster.down();
}

/// Each rung has the value of its last step, however many were logged around it.
async fn has_exact_values(cluster: &TestCluster, trial: &TrialView) {
    for rung in &trial.rungs {
        let value = rung.values[0].expect("finite");
        let expected = f1(rate(trial), rung.step);
        assert!(
            (value - expected).abs() < 1e-9,
            "{value} is not {expected}: {trial:#?}"
        );
    }
    let job = trial.job_id.expect("a job");
    let metrics = cluster.client().metrics(job).await.expect("metrics");
    let newest = metrics.iter().find(|metric| metric.name == METRIC);
    let newest = newest.expect("it was logged").last_step;
    assert_eq!(newest, 100 * trial.budget - 1, "it trained to its rung");
}

#[tokio::test]
async fn trial_without_its_metric_suggests_the_logged_one() {
    let mut cluster = TestCluster::start(NODE).await;
    let mut document = asha();
    document["name"] = json!("misnamed");
    document["search"]["objectives"][0]["metric"] = json!("val_f1");
    document["search"]["trials"] = json!(1);
    document["search"]["parameters"][0]["choices"] = json!([0.5]);
    let id = created(&cluster, &document).await;
    finished(&cluster, id, PATIENCE, |_| {}).await;
    let trials = trials(&cluster, id).await;
    assert_eq!(trials[0].state, TrialPhase::Failed);
    let failure = trials[0].failure.clone().expect("a reason");
    let words = "logged val_f1; it logged epoch, loss, val/f1; did you mean \"val/f1\"?";
    assert!(failure.contains(words), "{failure}");
    cluster.down();
}

#[tokio::test]
async fn program_ends_at_the_target_of_its_own_metric() {
    let mut cluster = TestCluster::start(NODE).await;
    let document = json!({
        "version": "muster/v1", "name": "target", "retries": 0,
        "command": {"argv": ["python3", "train.py"], "files": {"train.py": TARGET}},
        "stop": {"target": {"metric": METRIC, "value": 0.5, "goal": "maximize"}},
    });
    let job = cluster.client().submit(&document, None).await;
    let job = job.expect("accepted").id;
    let done = cluster
        .until(job, "the target ends it", |job| job.phase.is_terminal())
        .await;
    assert_eq!(done.phase, JobPhase::Succeeded, "{done:?}");
    assert_eq!(done.model_path, None);
    let text = log(&cluster, job, "worker-0").await;
    assert!(text.contains("saw SIGTERM"), "{text}");
    let history = cluster.history(job).await;
    let reasons: Vec<String> = history
        .into_iter()
        .filter_map(|one| match one.event {
            Event::TrainingFinished { reason, .. } => Some(reason),
            _ => None,
        })
        .collect();
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    assert!(
        reasons[0].starts_with("val/f1 reached 0.5") && reasons[0].ends_with("its target is 0.5"),
        "{reasons:?}"
    );
    cluster.down();
}

#[tokio::test]
async fn population_of_programs_continues_from_the_best() {
    let mut cluster = TestCluster::start(NODE).await;
    let id = created(&cluster, &population()).await;
    finished(&cluster, id, PATIENCE, |_| {}).await;
    let trials = trials(&cluster, id).await;
    let copies = trials.iter().filter(|trial| trial.from.is_some());
    assert!(copies.clone().count() >= 2, "{trials:#?}");
    for copy in copies {
        let from = copy.from.expect("a copy");
        let first = copy.curve.first().expect("a measurement");
        assert_eq!(first.step, from.step + 1, "it began there: {copy:#?}");
    }
    let mut best = (f64::MIN, 0);
    for trial in &trials {
        let outcome = trial.outcome.as_ref().expect("a result");
        let (value, expected) = (
            outcome.values[0].expect("finite"),
            weight(&trials, trial, outcome.step),
        );
        assert!(
            (value - expected).abs() < 1e-9,
            "{value} is not {expected}: {trial:#?}"
        );
        if value > best.0 {
            best = (value, trial.number);
        }
    }
    let chosen = trials.iter().find(|trial| trial.best).expect("a best one");
    assert_eq!(
        (chosen.number, chosen.state),
        (best.1, TrialPhase::Completed)
    );
    let jobs: Vec<JobId> = trials.iter().filter_map(|trial| trial.job_id).collect();
    no_gpu_was_held_twice(&cluster, &jobs).await;
    cluster.down();
}

/// Weight of a trial after an epoch: that of its origin, and what it has trained since.
fn weight(trials: &[TrialView], trial: &TrialView, epoch: u64) -> f64 {
    let (mut weight, first) = trial.from.map_or((0.0, 0), |from| {
        let origin = &trials[from.trial as usize];
        (self::weight(trials, origin, from.step), from.step)
    });
    for _ in first..epoch {
        weight += 0.25 - (rate(trial) - 0.5).powi(2);
    }
    weight
}
