//! Studies on a real Postgres. The tests train the trials themselves or check their jobs.

use crate::support::Store;
use muster_model::id::StudyId;
use muster_model::job::{Intent, JobPhase};
use muster_model::study::{StudyOrder, StudyPhase, Told, ToldState, TrialPhase};
use muster_model::view::TrialView;
use muster_scheduler::clock;
use muster_scheduler::study::{StudyCache, once};
use muster_store::study::{self, StudyRow, outside, trial};
use serde_json::{Value, json};

fn document(more: Value) -> Value {
    let mut document = json!({
        "version": "muster/v1", "kind": "study", "name": "search",
        "search": {
            "objectives": [{"metric": "loss", "goal": "minimize"}],
            "parameters": [
                {"name": "x", "type": "float", "low": -5.0, "high": 5.0},
                {"name": "kind", "type": "categorical", "choices": ["a", "b"]},
            ],
            "searcher": {"kind": "tpe", "startup": 5},
            "stopper": {"kind": "asha", "min": 1, "eta": 3},
            "budget": {"max": 9}, "trials": 24, "concurrency": 4, "seed": 7, "reproducible": true,
        },
    });
    for (key, value) in more.as_object().expect("fields") {
        document["search"][key] = value.clone();
    }
    document
}

fn loss(trial: &TrialView, step: u64) -> f64 {
    let x = trial.parameters["x"].as_f64().expect("a number");
    let shift = if trial.parameters["kind"] == "a" {
        0.0
    } else {
        1.0
    };
    (x - 2.0).powi(2) + shift + 1.0 / step as f64
}

async fn order(store: &Store, id: StudyId, orders: &[StudyOrder]) -> study::StudyOrderOutcome {
    let mut tx = store.as_member().await;
    let done = study::order(&mut tx, id, orders, clock::now()).await;
    tx.commit().await.expect("committed");
    done.expect("ordered")
}

async fn deleted(store: &Store, id: StudyId) -> study::StudyOrderOutcome {
    let mut tx = store.as_member().await;
    let done = study::delete(&mut tx, id, clock::now()).await;
    tx.commit().await.expect("committed");
    done.expect("deleted")
}

async fn shown(store: &Store, id: StudyId) -> StudyRow {
    let mut tx = store.as_member().await;
    let found = study::get(&mut tx, id).await.expect("read");
    found.expect("a study")
}

async fn all(store: &Store, id: StudyId) -> Vec<TrialView> {
    let mut tx = store.as_member().await;
    let found = trial::list(&mut tx, id, None, true, None, 1000).await;
    found.expect("read")
}

/// Processes that run the study.
#[derive(Clone, Copy, PartialEq)]
enum Schedulers {
    One,
    /// Another process for each step.
    New,
    /// The leader, and a former leader that has not noticed the loss yet.
    Two,
}

/// Trains every open trial. `turn` decides on the order of results.
async fn trained(store: &Store, document: Value, by: Schedulers, turn: usize) -> Vec<TrialView> {
    let id = store.create_study(document).await;
    let (mut memory, mut other) = (StudyCache::default(), StudyCache::default());
    let mut open: Vec<TrialView> = Vec::new();
    for _ in 0..2000 {
        if by == Schedulers::New {
            memory = StudyCache::default();
        }
        if by == Schedulers::Two {
            let passes = tokio::join!(
                once(&store.pool, &mut memory),
                once(&store.pool, &mut other)
            );
            passes.0.and(passes.1).expect("both pass");
        } else {
            once(&store.pool, &mut memory).await.expect("a pass");
        }
        let mut tx = store.as_member().await;
        let asked = outside::ask(&mut tx, id, 10, clock::now()).await;
        tx.commit().await.expect("committed");
        open.extend(asked.expect("asked").expect("a study").trials);
        if open.is_empty() {
            break;
        }
        let trial = open.remove(turn % open.len());
        let told = Told {
            trial: trial.number,
            step: trial.budget,
            values: vec![loss(&trial, trial.budget)],
            state: ToldState::Finished,
            exhausted: false,
        };
        // A repeated report has no effect.
        let tell = StudyOrder::Tell { told };
        order(store, id, &[tell.clone(), tell]).await;
    }
    let row = shown(store, id).await;
    assert_eq!(row.phase, StudyPhase::Finished);
    assert_eq!(row.counts.created, 24);
    assert_eq!(
        row.counts.running + row.counts.waiting + row.counts.stopping,
        0
    );
    let trials = all(store, id).await;
    let best = trials.iter().filter(|trial| trial.best).collect::<Vec<_>>();
    assert_eq!(best.len(), 1);
    assert_eq!(best[0].number, row.best[0].number);
    trials
}

/// All fields except ids and times.
fn same(trials: &[TrialView]) -> Vec<Value> {
    let kept = trials.iter().map(|trial| {
        json!([
            trial.number,
            trial.state,
            trial.parameters,
            trial.seed,
            trial.budget,
            trial.rung,
            trial.rungs,
            trial.best
        ])
    });
    kept.collect()
}

#[tokio::test]
async fn study_is_same_if_scheduler_restarts_after_each_step() {
    let store = Store::new().await;
    let whole = trained(&store, document(json!({})), Schedulers::One, 0).await;
    let broken = trained(&store, document(json!({})), Schedulers::New, 0).await;
    assert_eq!(same(&whole), same(&broken));
    // Reproducible in every order of results.
    let shuffled = trained(&store, document(json!({})), Schedulers::New, 3).await;
    assert_eq!(same(&whole), same(&shuffled));
    let doubled = trained(&store, document(json!({})), Schedulers::Two, 0).await;
    assert_eq!(same(&whole), same(&doubled));
    let stopped = whole.iter().filter(|t| t.state == TrialPhase::Stopped);
    assert!(stopped.count() > 10, "most trials stop early");
    assert!(
        whole
            .iter()
            .any(|t| t.state == TrialPhase::Completed && t.budget == 9)
    );
}

#[tokio::test]
async fn trial_jobs_belong_to_tenant_and_end_with_study() {
    let store = Store::new().await;
    let mut document = document(json!({
        "objectives": [{"metric": "test_accuracy", "goal": "maximize"}],
        "parameters": [{"name": "rate", "field": "engine.optimizer.learning_rate", "type": "float", "low": 0.01, "high": 0.1}],
        "concurrency": 2, "searcher": {"kind": "random"},
    }));
    document["job"] = json!({
        "engine": {"model": {"kind": "mlp", "hidden": [8]}, "dataset": {"name": "fashion-mnist"}, "optimizer": {"kind": "sgd"}, "batch": 64},
    });
    let id = store.create_study(document).await;
    let mut memory = StudyCache::default();
    assert_eq!(once(&store.pool, &mut memory).await.expect("a pass"), 1);
    assert_eq!(
        once(&store.pool, &mut memory).await.expect("a pass"),
        0,
        "nothing is left to take in"
    );
    let trials = all(&store, id).await;
    assert_eq!(trials.len(), 2);
    for trial in &trials {
        let job = store.job(trial.job_id.expect("a job")).await;
        assert_eq!(job.spec.name, format!("search-{}", trial.number));
        assert_eq!(job.spec.stop.epochs, Some(1), "the first rung");
        assert_eq!(trial.job_phase, Some(JobPhase::Queued));
    }
    assert_eq!(
        order(&store, id, &[StudyOrder::Cancel]).await,
        study::StudyOrderOutcome::Done
    );
    once(&store.pool, &mut memory).await.expect("a pass");
    let row = shown(&store, id).await;
    assert_eq!((row.phase, row.counts.stopping), (StudyPhase::Closing, 2));
    for trial in &trials {
        let job = store.job(trial.job_id.expect("a job")).await;
        assert_eq!(job.intent, Intent::Cancel);
    }
    // A round applies the intent, and the search receives the fact.
    let policy =
        muster_core::policy::Policy::named(muster_core::policies::name::PolicyName::Muster);
    let mut rounds = muster_scheduler::round::RoundMemory::default();
    muster_scheduler::round::once(&store.pool, &policy, &mut rounds)
        .await
        .expect("a round");
    once(&store.pool, &mut memory).await.expect("a pass");
    let row = shown(&store, id).await;
    assert_eq!((row.phase, row.counts.stopped), (StudyPhase::Cancelled, 2));
    let refused = order(&store, id, &[StudyOrder::Extend { trials: 1 }]).await;
    assert_eq!(
        refused,
        study::StudyOrderOutcome::Refused {
            phase: StudyPhase::Cancelled
        }
    );
}

fn finish(trial: u32) -> StudyOrder {
    StudyOrder::Tell {
        told: Told {
            trial,
            step: 9,
            values: vec![1.0],
            state: ToldState::Finished,
            exhausted: false,
        },
    }
}

#[tokio::test]
async fn study_can_be_paused_resumed_and_extended() {
    let store = Store::new().await;
    let id = store
        .create_study(document(
            json!({"trials": 2, "concurrency": 1, "stopper": {"kind": "none"}}),
        ))
        .await;
    let mut memory = StudyCache::default();
    once(&store.pool, &mut memory).await.expect("a pass");
    order(&store, id, &[StudyOrder::Pause, finish(0)]).await;
    once(&store.pool, &mut memory).await.expect("a pass");
    let row = shown(&store, id).await;
    assert_eq!(
        (row.phase, row.counts.created, row.counts.completed),
        (StudyPhase::Paused, 1, 1)
    );
    order(&store, id, &[StudyOrder::Resume]).await;
    once(&store.pool, &mut memory).await.expect("a pass");
    order(&store, id, &[finish(1)]).await;
    once(&store.pool, &mut memory).await.expect("a pass");
    let row = shown(&store, id).await;
    assert_eq!((row.phase, row.counts.created), (StudyPhase::Finished, 2));
    assert!(row.finished_at.is_some());
    order(&store, id, &[StudyOrder::Extend { trials: 3 }]).await;
    once(&store.pool, &mut memory).await.expect("a pass");
    let row = shown(&store, id).await;
    assert_eq!(
        (row.phase, row.counts.created, row.counts.limit),
        (StudyPhase::Running, 3, 5)
    );
    assert!(row.finished_at.is_none());
}

#[tokio::test]
async fn exhausted_trial_has_completed() {
    let store = Store::new().await;
    let id = store
        .create_study(document(json!({"trials": 1, "concurrency": 1})))
        .await;
    let mut memory = StudyCache::default();
    once(&store.pool, &mut memory).await.expect("a pass");
    let told = Told {
        trial: 0,
        step: 1,
        values: vec![1.0],
        state: ToldState::Finished,
        exhausted: true,
    };
    order(&store, id, &[StudyOrder::Tell { told }]).await;
    once(&store.pool, &mut memory).await.expect("a pass");
    let row = shown(&store, id).await;
    assert_eq!((row.phase, row.counts.completed), (StudyPhase::Finished, 1));
}

#[tokio::test]
async fn unstorable_study_ends_with_reason() {
    let store = Store::new().await;
    let parameters = json!([{"name": "a\u{0}b", "type": "float", "low": 0.0, "high": 1.0}]);
    let id = store
        .create_study(document(json!({ "parameters": parameters })))
        .await;
    let other = store.create_study(document(json!({}))).await;
    let mut memory = StudyCache::default();
    once(&store.pool, &mut memory).await.expect("looked");
    assert_eq!(shown(&store, id).await.phase, StudyPhase::Cancelled);
    assert_eq!(shown(&store, other).await.phase, StudyPhase::Running);
    let events = store.notes().await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(
        events[0].contains(&id.to_string()) && events[0].contains("NUL"),
        "{events:?}"
    );
    assert_eq!(deleted(&store, id).await, study::StudyOrderOutcome::Done);
}

#[tokio::test]
async fn cancel_ends_study_with_unreadable_state() {
    let store = Store::new().await;
    let id = store.create_study(document(json!({}))).await;
    once(&store.pool, &mut StudyCache::default())
        .await
        .expect("looked");
    let asked = all(&store, id).await;
    assert!(!asked.is_empty());
    let seq = shown(&store, id).await.seq;
    let saved = study::save::StudyStepChanges {
        phase: "running",
        cancelled: false,
        limit: 24,
        proposed: 0,
        seq: seq + 1,
        before: seq,
        taken: Vec::new(),
        events: vec!["{}".to_owned()],
        state: Some("{}".to_owned()),
        created: Vec::new(),
        changed: Vec::new(),
        has_jobs: false,
        durable: true,
    };
    let mut conn = store.pool.acquire().await.expect("a connection");
    let now = clock::now();
    assert!(
        study::save::save(&mut conn, id, &saved, now)
            .await
            .expect("saved")
    );
    drop(conn);
    order(&store, id, &[StudyOrder::Resume]).await;
    once(&store.pool, &mut StudyCache::default())
        .await
        .expect("looked");
    assert_eq!(shown(&store, id).await.phase, StudyPhase::Running);
    order(&store, id, &[StudyOrder::Cancel]).await;
    once(&store.pool, &mut StudyCache::default())
        .await
        .expect("looked");
    assert_eq!(shown(&store, id).await.phase, StudyPhase::Cancelled);
    for trial in all(&store, id).await {
        assert_eq!(trial.state, TrialPhase::Failed);
        assert!(trial.failure.is_some_and(|why| why.contains("cancelled")));
    }
    assert_eq!(deleted(&store, id).await, study::StudyOrderOutcome::Done);
}
