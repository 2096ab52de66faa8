//! Studies of programs by metrics of their own, on a real Postgres.

use crate::support::Store;
use crate::support::train::Training;
use muster_model::assignment::TaskReport;
use muster_model::id::{JobId, StudyId};
use muster_model::job::{AfterStop, JobState};
use muster_model::metric::{MetricPoint, ObjectiveValue, ObjectiveValues};
use muster_model::study::{StudyPhase, TrialPhase};
use muster_model::view::TrialView;
use muster_scheduler::study::{StudyCache, once};
use muster_store::study::{self, trial};
use serde_json::{Value, json};

const METRIC: &str = "val/f1";

/// Three trials of a program, of which ASHA continues the best.
fn document(more: Value) -> Value {
    let mut document = json!({
        "version": "muster/v1", "kind": "study", "name": "search",
        "search": {
            "objectives": [{"metric": METRIC, "goal": "maximize"}],
            "parameters": [{"name": "rate", "field": "command.env.RATE", "type": "float", "low": 0.01, "high": 0.1}],
            "searcher": {"kind": "random"}, "stopper": {"kind": "asha", "min": 2, "eta": 3},
            "budget": {"max": 6, "field": "command.env.EPOCHS"}, "trials": 3, "concurrency": 3,
        },
        "job": {"command": {"argv": ["python3", "train.py"]}},
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

async fn trials(store: &Store, id: StudyId) -> Vec<TrialView> {
    let mut tx = store.as_member().await;
    let found = trial::list(&mut tx, id, None, true, None, 1000).await;
    found.expect("read")
}

async fn jobs(store: &Store, id: StudyId) -> Vec<JobId> {
    let trials = trials(store, id).await;
    trials.iter().filter_map(|trial| trial.job_id).collect()
}

fn value(epoch: u64, value: Option<f64>) -> TaskReport {
    let name = METRIC.to_owned();
    let measured = ObjectiveValues {
        step: epoch * 10,
        epoch: epoch as f64,
        values: vec![ObjectiveValue { name, value }],
    };
    TaskReport::ObjectivesMeasured { measured }
}

/// Trains the job with these values of its metric by epoch.
async fn trained(store: &Store, job: JobId, values: &[(u64, Option<f64>)]) {
    let mut training = Training::start(store, job).await;
    for (epoch, logged) in values {
        training.tell(store, value(*epoch, *logged)).await;
    }
    training.succeed(store, 1).await;
}

/// Returns step and value of each rung.
fn rungs(trial: &TrialView) -> Vec<(u64, Option<f64>)> {
    let rungs = trial.rungs.iter();
    rungs.map(|point| (point.step, point.values[0])).collect()
}

#[tokio::test]
async fn asha_judges_programs_by_their_own_metric() {
    let store = Store::new().await;
    let id = store.create_study(document(json!({}))).await;
    pass(&store).await;
    let jobs = jobs(&store, id).await;
    trained(&store, jobs[0], &[(1, Some(0.9)), (2, Some(0.1))]).await;
    trained(&store, jobs[1], &[(1, Some(0.1)), (2, Some(0.5))]).await;
    // A value that is not finite is worse than every other one.
    trained(&store, jobs[2], &[(1, Some(0.99)), (2, None)]).await;
    pass(&store).await;
    let after = trials(&store, id).await;
    assert_eq!(rungs(&after[0]), [(2, Some(0.1))], "not its best value");
    assert_eq!(rungs(&after[2]), [(2, None)]);
    let states: Vec<TrialPhase> = after.iter().map(|trial| trial.state).collect();
    assert_eq!(
        states,
        [
            TrialPhase::Waiting,
            TrialPhase::Running,
            TrialPhase::Waiting
        ]
    );
    // A start repeats the steps after its checkpoint; the end counts.
    trained(
        &store,
        jobs[1],
        &[(2, Some(0.4)), (5, Some(0.7)), (6, Some(0.6))],
    )
    .await;
    pass(&store).await;
    let after = trials(&store, id).await;
    assert_eq!(rungs(&after[1]), [(2, Some(0.5)), (6, Some(0.6))]);
    let curve: Vec<u64> = after[1].curve.iter().map(|point| point.step).collect();
    assert_eq!(curve, [1, 2, 5, 6]);
    assert!(after[1].best, "{after:#?}");
    let mut tx = store.as_member().await;
    let row = study::get(&mut tx, id)
        .await
        .expect("read")
        .expect("a study");
    assert_eq!(row.phase, StudyPhase::Finished);
}

#[tokio::test]
async fn running_trial_is_stopped_at_its_own_metric() {
    let store = Store::new().await;
    let search = json!({
        "stopper": {"kind": "median", "startup": 1}, "trials": 2, "concurrency": 2,
    });
    let id = store.create_study(document(search)).await;
    pass(&store).await;
    let jobs = jobs(&store, id).await;
    let curve: Vec<_> = (1..=6).map(|epoch| (epoch, Some(0.8))).collect();
    trained(&store, jobs[0], &curve).await;
    pass(&store).await;
    let mut bad = Training::start(&store, jobs[1]).await;
    bad.tell(&store, value(1, Some(0.2))).await;
    pass(&store).await;
    let after = trials(&store, id).await;
    assert_eq!(after[1].state, TrialPhase::Stopping);
    let job = store.job(jobs[1]).await;
    assert_eq!(job.intent, muster_model::job::Intent::Cancel);
}

/// A report after each value, as from a program that trains for long.
#[tokio::test]
async fn taken_values_are_removed_except_the_newest() {
    let store = Store::new().await;
    let search = json!({"stopper": {"kind": "none"}, "budget": {"max": 50}, "trials": 1});
    let id = store.create_study(document(search)).await;
    pass(&store).await;
    let job = jobs(&store, id).await[0];
    let mut training = Training::start(&store, job).await;
    for epoch in 1..=5 {
        training
            .tell(&store, value(epoch, Some(0.1 * epoch as f64)))
            .await;
        pass(&store).await;
    }
    let mut conn = store.pool.acquire().await.expect("a connection");
    let left = muster_store::objective::forget_taken(&mut conn, id, &[0]).await;
    assert_eq!(left.expect("deleted"), 0, "each step removes what it took");
    // A restart repeats steps that the study has measured. They are never taken.
    for epoch in 1..=4 {
        training.tell(&store, value(epoch, Some(0.3))).await;
    }
    let left = muster_store::objective::forget_taken(&mut conn, id, &[0]).await;
    assert_eq!(left.expect("deleted"), 0, "a report removes old values");
    assert_eq!(
        once(&store.pool, &mut StudyCache::default())
            .await
            .expect("a pass"),
        0
    );
    training.succeed(&store, 1).await;
    pass(&store).await;
    let after = trials(&store, id).await;
    assert_eq!(rungs(&after[0]), [(50, Some(0.5))]);
    assert_eq!(after[0].curve.len(), 6);
}

#[tokio::test]
async fn trial_that_never_logged_the_metric_names_others() {
    let store = Store::new().await;
    let id = store.create_study(document(json!({"trials": 1}))).await;
    pass(&store).await;
    let job = jobs(&store, id).await[0];
    let mut training = Training::start(&store, job).await;
    let points = ["loss", "val_f1"].map(|name| MetricPoint {
        name: name.to_owned(),
        step: 1,
        value: 0.5,
        merged: None,
    });
    let points = points.into();
    training.tell(&store, TaskReport::Metrics { points }).await;
    training.succeed(&store, 1).await;
    pass(&store).await;
    let after = trials(&store, id).await;
    assert_eq!(after[0].state, TrialPhase::Failed);
    let failure = after[0].failure.clone().expect("a reason");
    assert!(
        failure.contains("logged val/f1; it logged loss, val_f1"),
        "{failure}"
    );
    assert!(failure.contains("did you mean \"val_f1\"?"), "{failure}");
}

/// The program has lost its newest checkpoint, so it repeats steps and ends before the old ones.
#[tokio::test]
async fn restart_replaces_values_from_its_first_step_on() {
    let store = Store::new().await;
    let id = store.create_study(document(json!({}))).await;
    pass(&store).await;
    let jobs = jobs(&store, id).await;
    let first = [(1, Some(0.1)), (2, Some(0.5)), (3, Some(0.8))];
    trained(&store, jobs[0], &first).await;
    for job in &jobs[1..] {
        trained(&store, *job, &[(2, Some(0.2))]).await;
    }
    pass(&store).await;
    trained(&store, jobs[0], &[(2, Some(0.4))]).await;
    pass(&store).await;
    let after = trials(&store, id).await;
    // It had passed the end of its first rung, where the others are compared.
    assert_eq!(rungs(&after[0]), [(2, Some(0.8)), (6, Some(0.4))]);
}

#[tokio::test]
async fn program_at_its_target_is_stopped_as_succeeded() {
    let store = Store::new().await;
    let job = store
        .submit_document(json!({
            "version": "muster/v1", "name": "target",
            "command": {"argv": ["python3", "train.py"]},
            "stop": {"target": {"metric": METRIC, "value": 0.5, "goal": "maximize"}},
        }))
        .await;
    let mut training = Training::start(&store, job).await;
    let policy =
        muster_core::policy::Policy::named(muster_core::policies::name::PolicyName::Muster);
    let mut rounds = muster_scheduler::round::RoundMemory::default();
    for (value, is_reached) in [(0.4, false), (0.6, true), (0.7, true)] {
        let point = MetricPoint {
            name: METRIC.to_owned(),
            step: 1,
            value,
            merged: None,
        };
        let points = vec![point];
        training.tell(&store, TaskReport::Metrics { points }).await;
        muster_scheduler::round::once(&store.pool, &policy, &mut rounds)
            .await
            .expect("a round");
        let state = store.job(job).await.state;
        let succeeds = matches!(
            state,
            JobState::Stopping {
                then: AfterStop::Succeed,
                ..
            }
        );
        assert_eq!(succeeds, is_reached, "{state:?}");
    }
}
