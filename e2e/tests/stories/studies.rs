//! Studies of real small trainings on local nodes, most of which stop early. Repeated kills of the
//! scheduler do not change the result.

use muster_client::ClientError;
use muster_e2e::cluster::{OUTLASTS_A_SCHEDULER_MS, PATIENCE, TestCluster, TestClusterOptions};
use muster_e2e::story::no_gpu_was_held_twice;
use muster_e2e::study::{created, finished, sequence, trials};
use muster_model::id::JobId;
use muster_model::job::JobPhase;
use muster_model::study::TrialPhase;
use muster_model::view::{StudyView, TrialView};
use serde_json::{Value, json};

const NODES: TestClusterOptions = TestClusterOptions { nodes: 1, slots: 2 };
const TRIALS: u32 = 9;

/// Small trainings of at most about two seconds per epoch, each a job.
fn document(name: &str) -> Value {
    json!({
        "version": "muster/v1", "kind": "study", "name": name,
        "search": {
            "objectives": [{"metric": "test_accuracy", "goal": "maximize"}],
            "parameters": [
                {"name": "rate", "field": "engine.optimizer.learning_rate", "type": "float", "low": 0.0001, "high": 0.3, "log": true},
                {"name": "width", "field": "engine.model.hidden[0]", "type": "int", "low": 16, "high": 64, "step": 16},
            ],
            "searcher": {"kind": "tpe", "startup": 4},
            "stopper": {"kind": "asha", "min": 1, "eta": 3},
            "budget": {"max": 9, "unit": "epochs"},
            "trials": TRIALS, "concurrency": 2, "seed": 5, "reproducible": true,
        },
        "job": {
            "engine": {
                "model": {"kind": "mlp", "hidden": [16]},
                "dataset": {"name": "fashion-mnist", "train_limit": 2560, "test_limit": 500},
                "optimizer": {"kind": "sgd"}, "batch": 128,
            },
        },
    })
}

#[tokio::test]
async fn study_is_same_under_repeated_kills_of_scheduler() {
    let mut cluster = TestCluster::start_leasing(NODES, OUTLASTS_A_SCHEDULER_MS).await;
    bad_documents_are_refused_by_field(&cluster).await;
    let calm = created(&cluster, &document("calm")).await;
    let calm = finished(&cluster, calm, PATIENCE, |_| {}).await;
    let hit = created(&cluster, &document("hit")).await;
    let mut kills = 0;
    let mut looks = 0;
    let hit = finished(&cluster, hit, PATIENCE, |_| {
        looks += 1;
        // About every second, at unrelated moments.
        if looks % 14 == 6
            && let Some(victim) = cluster.running("muster-scheduler").first()
        {
            cluster.kill(victim);
            kills += 1;
        }
    })
    .await;
    assert!(kills >= 3, "it was killed {kills} times");
    let (calm_trials, hit_trials) = (
        trials(&cluster, calm.id).await,
        trials(&cluster, hit.id).await,
    );
    assert_eq!(sequence(&calm_trials), sequence(&hit_trials));
    for trials in [&calm_trials, &hit_trials] {
        ended_well(&cluster, trials).await;
    }
    best_has_its_checkpoint(&cluster, &hit).await;
    cluster.down();
}

async fn ended_well(cluster: &TestCluster, trials: &[TrialView]) {
    assert_eq!(trials.len(), TRIALS as usize);
    let in_state = |state| trials.iter().filter(|t| t.state == state).count();
    assert!(in_state(TrialPhase::Completed) >= 1, "{trials:#?}");
    assert!(in_state(TrialPhase::Stopped) >= 5, "{trials:#?}");
    let mut jobs: Vec<JobId> = Vec::new();
    for trial in trials {
        let id = trial.job_id.expect("a trial is a job");
        assert!(!jobs.contains(&id), "two trials are one job");
        jobs.push(id);
        let job = cluster.client().job(id).await.expect("its job");
        assert_eq!(job.phase, JobPhase::Succeeded);
        assert_eq!(job.trial.map(|one| one.number), Some(trial.number));
        let starts = u64::from(trial.rung) + 1;
        assert_eq!(job.revision, starts, "each rung was trained once");
        let curve: Vec<u64> = trial.curve.iter().map(|point| point.step).collect();
        assert_eq!(curve, (1..=trial.budget).collect::<Vec<_>>());
    }
    no_gpu_was_held_twice(cluster, &jobs).await;
}

fn accuracy(trial: &TrialView) -> Option<f64> {
    trial.outcome.as_ref().and_then(|outcome| outcome.values[0])
}

async fn best_has_its_checkpoint(cluster: &TestCluster, study: &StudyView) {
    let best = cluster.client().best_trials(study.id).await.expect("best");
    let [best] = best.as_slice() else {
        panic!("one objective has one best: {best:?}");
    };
    let all = trials(cluster, study.id).await;
    let highest = all.iter().filter_map(accuracy).fold(0.0, f64::max);
    assert_eq!(accuracy(&best.trial), Some(highest));
    let written = best.checkpoint.as_ref().expect("a checkpoint");
    assert!(cluster.checkpoints().join(&written.path).is_dir());
    let output = cluster.muster().args(["study", "best", "hit"]).output();
    let said = String::from_utf8(output.expect("muster runs").stdout).expect("text");
    assert!(said.contains(&written.path), "{said}");
    let csv = cluster.client().export_study(study.id, "csv").await;
    assert_eq!(csv.expect("a file").lines().count(), TRIALS as usize + 1);
}

/// A document of a study whose parameter has changed fields.
fn with_parameter(index: usize, change: &Value) -> Value {
    let mut document = document("bad");
    let entry = &mut document["search"]["parameters"][index];
    for (key, value) in change.as_object().expect("fields") {
        entry[key] = value.clone();
    }
    document
}

/// Errors in a space are reported at submission with the field and the expected value.
async fn bad_documents_are_refused_by_field(cluster: &TestCluster) {
    let mut grid = with_parameter(0, &json!({"log": false, "step": 0.000_000_001}));
    grid["search"]["searcher"] = json!({"kind": "grid"});
    let mut metric = document("bad");
    metric["search"]["objectives"][0]["metric"] = json!("test_acuracy");
    let choices =
        json!({"type": "categorical", "choices": [], "low": null, "high": null, "step": null});
    for (bad, field, words) in [
        (
            with_parameter(0, &json!({"low": 0.5})),
            "search.parameters[0]",
            "low",
        ),
        (
            with_parameter(0, &json!({"low": 0.0})),
            "search.parameters[0]",
            "above 0",
        ),
        (
            with_parameter(1, &json!({"field": "engine.modell.width"})),
            "search.parameters[1]",
            "unknown field",
        ),
        (
            with_parameter(1, &json!({"name": "rate"})),
            "search.parameters[1].name",
            "no other parameter",
        ),
        (
            with_parameter(1, &choices),
            "search.parameters[1].choices",
            "1",
        ),
        (grid, "search.searcher", "1000000"),
        (metric, "search.objectives[0].metric", "test_accuracy"),
    ] {
        let refused = cluster.client().create_study(&bad, None).await;
        let Err(ClientError::Problem(problem)) = refused else {
            panic!("{bad} was not refused: {refused:?}");
        };
        assert_eq!(problem.status, 422, "{problem:?}");
        let named = problem
            .errors
            .iter()
            .any(|error| error.field.starts_with(field) && error.to_string().contains(words));
        assert!(named, "{field}, {words}: {:?}", problem.errors);
    }
    let page = cluster.client().studies(None, 10, None).await;
    assert!(
        page.expect("a list").items.is_empty(),
        "nothing was created"
    );
}
