//! Studies with trials, as the scheduler would have written them: results, large lists, and orders
//! that are concurrent with an end or a deletion.

use crate::world::{Answer, RED, World, at, json_request, keyed};
use axum::http::Method;
use muster_model::id::StudyId;
use muster_model::study::{StudyOrder, TrialPhase};
use muster_model::view::TrialPoint;
use muster_store::notify::{self, NotifyChannel};
use muster_store::pool::{self, Transaction};
use muster_store::study::save::{StudyStepChanges, save};
use muster_store::study::search;
use muster_store::study::trial_rows::TrialWrite;
use muster_store::study::{self, StudyOrderOutcome, trial};
use serde_json::{Value, json};

/// Creates a study whose trials are trained outside.
async fn created(world: &World) -> StudyId {
    let document = json!({
        "version": "muster/v1", "kind": "study", "name": "outside",
        "search": {
            "objectives": [{"metric": "loss", "goal": "minimize"}],
            "parameters": [{"name": "x", "type": "float", "low": 0.0, "high": 1.0}],
            "stopper": {"kind": "asha", "min": 1, "eta": 3}, "budget": {"max": 9}, "trials": 1000,
        },
    });
    let made = world.post(RED, "/api/v1/studies", &document).await;
    let made: Value = made.json();
    made["id"].as_str().expect("an id").parse().expect("an id")
}

/// Creates a study whose trials are chosen outside.
async fn external(world: &World) -> StudyId {
    let document = json!({
        "version": "muster/v1", "kind": "study", "name": "proposed",
        "search": {
            "objectives": [{"metric": "loss", "goal": "minimize"}],
            "parameters": [{"name": "x", "type": "float", "low": 0.0, "high": 1.0}],
            "searcher": {"kind": "external"}, "trials": 1000,
        },
    });
    let made: Value = world.post(RED, "/api/v1/studies", &document).await.json();
    made["id"].as_str().expect("an id").parse().expect("an id")
}

fn trial(number: u32) -> TrialWrite {
    TrialWrite {
        number,
        job_id: None,
        state: TrialPhase::Running,
        parameters: [("x".to_owned(), json!(0.5))].into_iter().collect(),
        seed: 1,
        budget: 1,
        rung: 0,
        from: None,
        reports: vec![],
        rungs: vec![],
        outcome: None,
        fed_step: None,
        end_fed: None,
        failure: None,
        best: false,
        open: false,
    }
}

/// Writes trials and phase as the scheduler does.
async fn written(world: &World, id: StudyId, trials: &[TrialWrite], phase: &'static str) {
    stands(world, id, trials, phase, 0).await;
}

/// As `written`, with a number of proposals that the scheduler has read and that wait.
async fn stands(
    world: &World,
    id: StudyId,
    trials: &[TrialWrite],
    phase: &'static str,
    proposed: u32,
) {
    let mut tx = pool::begin(&world.scheduler).await.expect("begun");
    let look = search::look(&mut tx, id).await.expect("read");
    let loaded = look.study.expect("a study");
    let there = trial::list(&mut tx, id, None, false, None, u32::MAX).await;
    let there = there.expect("read").len() as u32;
    let (changed, created): (Vec<_>, Vec<_>) =
        trials.iter().cloned().partition(|one| one.number < there);
    let saved = StudyStepChanges {
        phase,
        cancelled: loaded.cancelled,
        limit: 1000,
        proposed,
        seq: loaded.seq,
        before: loaded.seq,
        taken: vec![],
        events: vec![],
        state: None,
        created,
        changed,
        has_jobs: false,
        durable: true,
    };
    let done = save(&mut tx, id, &saved, at(1)).await;
    assert!(done.expect("saved"));
    tx.commit().await.expect("committed");
}

async fn as_red(world: &World) -> Transaction {
    pool::begin_for(&world.app.pool, world.red)
        .await
        .expect("begun")
}

fn place(id: StudyId, rest: &str) -> String {
    format!("/api/v1/studies/{id}{rest}")
}

fn told(step: Value, state: &str) -> Value {
    let mut result = json!({"trial": 0, "values": {"loss": 0.4}, "state": state});
    if !step.is_null() {
        result["step"] = step;
    }
    json!({"results": [result]})
}

#[tokio::test(flavor = "multi_thread")]
async fn result_needs_the_progress_of_its_trial() {
    let world = World::new().await;
    let id = created(&world).await;
    let rung = TrialPoint {
        step: 1,
        values: vec![Some(0.5)],
    };
    let goes_on = TrialWrite {
        budget: 3,
        rung: 1,
        rungs: vec![rung],
        ..trial(0)
    };
    written(&world, id, &[goes_on], "running").await;
    for (step, state, expected) in [
        (Value::Null, "finished", "such as 3"),
        (json!(2), "finished", "at least 3"),
        (Value::Null, "running", "so far"),
    ] {
        let told = told(step, state);
        let refused = world.post(RED, &place(id, "/tell"), &told).await;
        assert_eq!(refused.status, 422, "{told}");
        let error = refused.problem().errors.remove(0);
        assert_eq!(error.field, "results[0].step");
        assert!(error.expected.contains(expected), "{error}");
    }
    // The first rung's result, repeated because its answer was lost.
    for (step, state) in [
        (json!(1), "finished"),
        (json!(2), "running"),
        (json!(3), "finished"),
        (Value::Null, "failed"),
    ] {
        let mut told = told(step, state);
        if state == "failed" {
            told["results"][0]["values"] = json!({});
        }
        let taken = world.post(RED, &place(id, "/tell"), &told).await;
        assert_eq!(taken.status, 202, "{told}: {}", taken.text());
    }
}

async fn extend(world: &World, id: StudyId, trials: u32) -> Answer {
    let path = place(id, "/extend");
    world.post(RED, &path, &json!({"trials": trials})).await
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_study_is_not_extended_and_extensions_add_up() {
    let world = World::new().await;
    let id = created(&world).await;
    written(&world, id, &[], "running").await;
    assert_eq!(extend(&world, id, 60_000).await.status, 202);
    let refused = extend(&world, id, 60_000).await;
    assert_eq!(refused.status, 422);
    let error = refused.problem().errors.remove(0);
    assert_eq!(error.field, "trials");
    assert!(error.expected.contains("1 to 39000"), "{error}");
    assert_eq!(extend(&world, id, 0).await.status, 422);
    // A repetition changes nothing.
    for _ in 0..2 {
        let path = place(id, "/cancel");
        assert_eq!(world.post(RED, &path, &json!({})).await.status, 202);
    }
    for (verb, body) in [
        ("extend", json!({"trials": 1})),
        ("resume", json!({})),
        ("pause", json!({})),
    ] {
        let refused = world
            .post(RED, &place(id, &format!("/{verb}")), &body)
            .await;
        assert_eq!(refused.status, 409, "{verb}");
        assert!(refused.text().contains("cancelled"), "{}", refused.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn extension_and_deletion_exclude_each_other() {
    let world = World::new().await;
    let id = created(&world).await;
    written(&world, id, &[], "finished").await;
    let mut extends = as_red(&world).await;
    let more = [StudyOrder::Extend { trials: 1 }];
    let done = study::order(&mut extends, id, &more, at(2)).await;
    assert_eq!(done.expect("ordered"), StudyOrderOutcome::Done);
    // The order is not committed yet; the deletion must still wait for it.
    let mut deletes = as_red(&world).await;
    let deleted = tokio::spawn(async move { study::delete(&mut deletes, id, at(3)).await });
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    extends.commit().await.expect("committed");
    let refused = deleted.await.expect("no panic").expect("read");
    assert_eq!(refused, StudyOrderOutcome::Busy { waiting: 1 });
    assert_eq!(world.delete(RED, &place(id, "")).await.status, 429);

    let other = created(&world).await;
    written(&world, other, &[], "finished").await;
    let mut deletes = as_red(&world).await;
    let done = study::delete(&mut deletes, other, at(3)).await;
    assert_eq!(done.expect("deleted"), StudyOrderOutcome::Done);
    let mut extends = as_red(&world).await;
    let extended = tokio::spawn(async move {
        study::order(
            &mut extends,
            other,
            &[StudyOrder::Extend { trials: 1 }],
            at(4),
        )
        .await
    });
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    deletes.commit().await.expect("committed");
    let found = extended.await.expect("no panic").expect("read");
    assert_eq!(found, StudyOrderOutcome::NotFound);
    let mut tx = pool::begin(&world.scheduler).await.expect("begun");
    let look = search::look(&mut tx, other).await.expect("read");
    assert!(look.study.is_none() && look.orders.is_empty());
}

fn length(page: &Value) -> Option<usize> {
    page["items"].as_array().map(Vec::len)
}

#[tokio::test(flavor = "multi_thread")]
async fn large_study_is_paged_and_exported_completely() {
    const TRIALS: u32 = 450;
    let world = World::new().await;
    let id = created(&world).await;
    let trials = (0..TRIALS).map(|number| TrialWrite {
        best: number < 30,
        ..trial(number)
    });
    let trials: Vec<TrialWrite> = trials.collect();
    written(&world, id, &trials, "running").await;

    let path = place(id, "/export?format=json");
    let all: Vec<Value> = world.get(RED, &path).await.json();
    let numbers: Vec<u64> = all.iter().filter_map(|t| t["number"].as_u64()).collect();
    assert_eq!(numbers, (0..u64::from(TRIALS)).collect::<Vec<_>>());
    let text = world.get(RED, &place(id, "/export")).await.text();
    assert_eq!(text.lines().count(), TRIALS as usize + 1);
    assert_eq!(text.matches("number,state").count(), 1);

    let path = place(id, "/trials?limit=500");
    let page: Value = world.get(RED, &path).await.json();
    assert_eq!(
        (length(&page), &page["continue"]),
        (Some(100), &json!("99"))
    );
    let path = place(id, "/trials?limit=500&curves=false");
    let page: Value = world.get(RED, &path).await.json();
    assert_eq!(length(&page), Some(TRIALS as usize));

    let list: Value = world.get(RED, "/api/v1/studies").await.json();
    let listed = &list["items"][0];
    assert_eq!(listed["best"].as_array().map(Vec::len), Some(10));
    assert_eq!(listed["trials"]["best"], 30);
    let shown: Value = world.get(RED, &place(id, "")).await.json();
    assert_eq!(shown["best"].as_array().map(Vec::len), Some(10));

    let page: Value = world.get(RED, &place(id, "/best?limit=20")).await.json();
    assert_eq!((length(&page), &page["continue"]), (Some(20), &json!("19")));
    let path = place(id, "/best?limit=20&continue=19");
    let rest: Value = world.get(RED, &path).await.json();
    assert_eq!((length(&rest), &rest["continue"]), (Some(10), &Value::Null));
    assert_eq!(rest["items"][0]["trial"]["number"], 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_ask_gets_the_next_trial() {
    let world = World::new().await;
    let id = created(&world).await;
    let ask = json!({"count": 1, "wait_s": 20});
    let path = place(id, "/ask");
    let (asked, ()) = tokio::join!(world.post(RED, &path, &ask), async {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        written(&world, id, &[trial(0)], "running").await;
        let mut tx = pool::begin(&world.scheduler).await.expect("begun");
        notify::send(&mut tx, &[NotifyChannel::Events])
            .await
            .expect("sent");
        tx.commit().await.expect("committed");
    });
    let asked: Value = asked.json();
    assert_eq!(asked["trials"][0]["number"], 0);
    assert_eq!(asked["phase"], "running");
}

/// Asks, or tells and asks, under a key.
async fn under(world: &World, key: &str, path: &str, body: &Value) -> Value {
    let request = json_request(Method::POST, RED, path, body);
    let answer = world.send(keyed(request, key)).await;
    assert!(answer.status.is_success(), "{}", answer.text());
    answer.json()
}

fn numbers(given: &Value) -> Vec<u64> {
    let trials = given["trials"].as_array().expect("a list").iter();
    trials
        .map(|one| one["number"].as_u64().expect("a number"))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_ask_under_its_key_gets_the_same_trials() {
    let world = World::new().await;
    let id = created(&world).await;
    let (ask, now) = (place(id, "/ask"), json!({"count": 2, "wait_s": 0}));
    let early = under(&world, "a", &ask, &now).await;
    assert_eq!(early["trials"], json!([]), "which uses up no key");
    written(&world, id, &[trial(0), trial(1), trial(2)], "running").await;
    let first = under(&world, "a", &ask, &now).await;
    assert_eq!(numbers(&first), [0, 1]);
    assert_eq!(under(&world, "a", &ask, &now).await, first);
    let tell = json!({
        "results": [{"trial": 0, "step": 1, "values": {"loss": 0.4}}], "ask": {"count": 1},
    });
    let told = under(&world, "b", &place(id, "/tell"), &tell).await;
    assert_eq!(numbers(&told["asked"]), [2]);
    let again = under(&world, "b", &place(id, "/tell"), &tell).await;
    assert_eq!(again["asked"], told["asked"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn result_of_a_trial_not_handed_out_is_refused() {
    let world = World::new().await;
    let id = created(&world).await;
    written(&world, id, &[trial(0)], "running").await;
    let tell = json!({"results": [{"trial": 0, "step": 1, "values": {"loss": 0.4}}]});
    let refused = world.post(RED, &place(id, "/tell"), &tell).await;
    assert_eq!(
        refused.status, 422,
        "it may be proposed anew, with other parameters"
    );
    assert_eq!(refused.problem().errors[0].field, "results[0].trial");
    let ask = json!({"count": 1});
    assert_eq!(world.post(RED, &place(id, "/ask"), &ask).await.status, 200);
    assert_eq!(
        world.post(RED, &place(id, "/tell"), &tell).await.status,
        202
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn impossible_trial_number_is_refused() {
    let world = World::new().await;
    let id = created(&world).await;
    written(&world, id, &[trial(0)], "running").await;
    for number in [1_u64 << 31, 3_000_000_000, u32::MAX.into()] {
        let tell = json!({"results": [{"trial": number, "state": "failed"}]});
        let refused = world.post(RED, &place(id, "/tell"), &tell).await;
        assert_eq!(refused.status, 422, "{number}");
        assert_eq!(refused.problem().errors[0].field, "results[0].trial");
        for list in ["/trials", "/best"] {
            let page = place(id, &format!("{list}?continue={number}"));
            let page = world.get(RED, &page).await;
            assert_eq!(page.status, 200, "{list} after {number}");
            assert_eq!(page.json::<Value>()["items"], json!([]));
        }
    }
}

async fn propose(world: &World, id: StudyId, count: usize, key: &str) -> Answer {
    let trials = vec![json!({"parameters": {"x": 0.5}}); count];
    let body = json!({"trials": trials});
    let request = json_request(Method::POST, RED, &place(id, "/propose"), &body);
    world.send(keyed(request, key)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn proposals_are_limited_and_stored_once_per_key() {
    let world = World::new().await;
    let id = external(&world).await;
    let first = propose(&world, id, 1000, "a").await;
    assert_eq!(first.status, 202, "{}", first.text());
    let again = propose(&world, id, 1000, "a").await;
    assert_eq!((again.status.as_u16(), &again.body), (202, &first.body));
    assert_eq!(again.header("idempotency-replayed"), "true");
    assert_eq!(
        propose(&world, id, 1, "a").await.status,
        422,
        "another request"
    );
    for key in ["b", "c", "d"] {
        assert_eq!(propose(&world, id, 1000, key).await.status, 202);
    }
    // Orders that wait for the scheduler count like those that it has read.
    stands(&world, id, &[], "running", 5900).await;
    let refused = propose(&world, id, 101, "e").await;
    assert_eq!(refused.status, 422);
    let error = &refused.problem().errors[0];
    assert_eq!((&*error.field, &*error.value), ("trials", "101 trials"));
    let rule = "9900 proposals wait to become trials, and 10000 may";
    assert_eq!(error.expected, format!("1 to 100 trials: {rule}"));
    // A refused request has not used its key.
    assert_eq!(propose(&world, id, 100, "e").await.status, 202);
    let refused = propose(&world, id, 1, "f").await;
    assert!(
        refused.problem().errors[0]
            .expected
            .starts_with("none for now")
    );
}
