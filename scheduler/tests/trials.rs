//! Trials with jobs on a real Postgres: facts of jobs reach the search in every interleaving.

use crate::support::Store;
use crate::support::train::Training;
use muster_model::id::{JobId, StudyId};
use muster_model::study::{StudyOrder, StudyPhase, TrialPhase};
use muster_model::tenant::LimitsSet;
use muster_model::view::TrialView;
use muster_scheduler::clock;
use muster_scheduler::study::{StudyCache, once};
use muster_store::study::{self, StudyRow, trial};
use serde_json::{Value, json};

/// Two trials at a time, of one epoch each.
fn document(more: Value) -> Value {
    let mut document = json!({
        "version": "muster/v1", "kind": "study", "name": "search",
        "search": {
            "objectives": [{"metric": "test_accuracy", "goal": "maximize"}],
            "parameters": [{"name": "rate", "field": "engine.optimizer.learning_rate", "type": "float", "low": 0.01, "high": 0.1}],
            "searcher": {"kind": "random"}, "budget": {"max": 1}, "trials": 2, "concurrency": 2,
        },
        "job": {
            "engine": {"model": {"kind": "mlp", "hidden": [8]}, "dataset": {"name": "fashion-mnist"}, "optimizer": {"kind": "sgd"}, "batch": 64},
        },
    });
    for (key, value) in more.as_object().expect("fields") {
        document["search"][key] = value.clone();
    }
    document
}

async fn pass(store: &Store) {
    once(&store.pool, &mut StudyCache::default())
        .await
        .expect("a pass");
}

async fn shown(store: &Store, id: StudyId) -> StudyRow {
    let mut tx = store.as_member().await;
    let found = study::get(&mut tx, id).await.expect("read");
    found.expect("a study")
}

async fn trials(store: &Store, id: StudyId) -> Vec<TrialView> {
    let mut tx = store.as_member().await;
    let found = trial::list(&mut tx, id, None, true, None, 1000).await;
    found.expect("read")
}

async fn jobs(store: &Store, id: StudyId) -> Vec<JobId> {
    let trials = trials(store, id).await;
    trials.iter().filter_map(|trial| trial.job_id).collect()
}

/// Trains the job for one epoch with this final accuracy.
async fn trained(store: &Store, job: JobId, accuracy: f64) {
    let per_epoch = store.job(job).await.spec.steps_per_epoch();
    let mut training = Training::start(store, job).await;
    training.evaluate(store, 1, per_epoch, accuracy).await;
    training.succeed(store, per_epoch).await;
}

#[tokio::test]
async fn study_ends_if_last_trial_succeeds_while_stopping() {
    let store = Store::new().await;
    let target = json!([{"metric": "test_accuracy", "goal": "maximize", "target": 0.9}]);
    let id = store
        .create_study(document(json!({"objectives": target})))
        .await;
    pass(&store).await;
    let jobs = jobs(&store, id).await;
    // One pass reads both. The evaluation of the first one closes the study, so both must stop.
    trained(&store, jobs[0], 0.95).await;
    trained(&store, jobs[1], 0.5).await;
    pass(&store).await;
    let row = shown(&store, id).await;
    assert_eq!(row.phase, StudyPhase::Finished, "{:?}", row.counts);
    assert_eq!(row.counts.stopped, 2);
}

#[tokio::test]
async fn cancelled_study_ends_after_late_first_evaluation() {
    let store = Store::new().await;
    let id = store.create_study(document(json!({"trials": 1}))).await;
    pass(&store).await;
    let job = jobs(&store, id).await[0];
    trained(&store, job, 0.5).await;
    let mut tx = store.as_member().await;
    study::order(&mut tx, id, &[StudyOrder::Cancel], clock::now())
        .await
        .expect("ordered");
    tx.commit().await.expect("committed");
    pass(&store).await;
    assert_eq!(shown(&store, id).await.phase, StudyPhase::Cancelled);
    assert_eq!(trials(&store, id).await[0].state, TrialPhase::Stopped);
}

#[tokio::test]
async fn trial_gives_reason_if_job_is_invalid_at_larger_budget() {
    // As many bytes of arguments as a command may have, while the budget has one digit.
    const MOST: usize = 64 << 10;
    let store = Store::new().await;
    let [a, d] = ["a", "d"].map(|end| format!("{}{end}", "x".repeat((MOST - 4) / 2 - 1)));
    let mut document = document(json!({
        "parameters": [
            {"name": "a", "field": "command.argv[1]", "type": "categorical", "choices": [a, "b", "c"]},
            {"name": "b", "field": "command.argv[2]", "type": "categorical", "choices": [d, "e", "f"]},
        ],
        "searcher": {"kind": "grid"}, "stopper": {"kind": "asha", "min": 9, "eta": 2},
        "budget": {"max": 18, "field": "command.argv[3]"},
    }));
    document["job"] = json!({"command": {"argv": ["run", "", "", "EPOCHS"]}});
    let id = store.create_study(document).await;
    pass(&store).await;
    let jobs = jobs(&store, id).await;
    let mut first = Training::start(&store, jobs[0]).await;
    first.evaluate(&store, 9, 1, 0.9).await;
    first.succeed(&store, 9).await;
    let mut second = Training::start(&store, jobs[1]).await;
    second.evaluate(&store, 9, 1, 0.1).await;
    second.succeed(&store, 9).await;
    pass(&store).await;
    let trial = trials(&store, id).await.swap_remove(0);
    assert_eq!((trial.state, trial.budget), (TrialPhase::Failed, 18));
    let failure = trial.failure.expect("a reason");
    assert!(failure.contains("command.argv"), "{failure}");
    assert!(failure.contains("18"), "{failure}");
}

#[tokio::test]
async fn trials_above_the_limit_wait_until_jobs_have_ended() {
    let store = Store::new().await;
    store
        .limit(LimitsSet {
            open_jobs: Some(1),
            ..LimitsSet::default()
        })
        .await;
    let id = store.create_study(document(json!({}))).await;
    pass(&store).await;
    pass(&store).await;
    let first = jobs(&store, id).await;
    assert_eq!(first.len(), 1, "the other waits");
    let states: Vec<_> = trials(&store, id).await;
    assert!(
        states
            .iter()
            .all(|trial| trial.state == TrialPhase::Running)
    );
    trained(&store, first[0], 0.5).await;
    pass(&store).await;
    pass(&store).await;
    let both = jobs(&store, id).await;
    assert_eq!(both.len(), 2);
    trained(&store, both[1], 0.6).await;
    pass(&store).await;
    let row = shown(&store, id).await;
    assert_eq!(row.phase, StudyPhase::Finished, "{:?}", row.counts);
    assert_eq!(row.counts.completed, 2);
}

#[tokio::test]
async fn study_without_room_for_any_trial_is_cancelled() {
    let store = Store::new().await;
    store
        .limit(LimitsSet {
            open_jobs: Some(0),
            ..LimitsSet::default()
        })
        .await;
    let id = store.create_study(document(json!({}))).await;
    pass(&store).await;
    assert_eq!(jobs(&store, id).await, []);
    let mut tx = store.as_member().await;
    study::order(&mut tx, id, &[StudyOrder::Cancel], clock::now())
        .await
        .expect("ordered");
    tx.commit().await.expect("committed");
    pass(&store).await;
    assert_eq!(shown(&store, id).await.phase, StudyPhase::Cancelled);
}
