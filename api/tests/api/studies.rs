//! Studies by REST before a scheduler has read them: creation, refusals, orders and visibility.

use crate::world::{Answer, BLUE, RED, World, at, json_request, keyed};
use axum::http::Method;
use muster_model::id::StudyId;
use muster_model::study::TrialPhase;
use muster_model::view::TrialPoint;
use muster_store::pool;
use muster_store::study::save::{StudyStepChanges, save};
use muster_store::study::{search, trial_rows};
use serde_json::{Value, json};

fn study(name: &str) -> Value {
    json!({
        "version": "muster/v1", "kind": "study", "name": name, "labels": {"team": "red"},
        "search": {
            "objectives": [{"metric": "test_loss", "goal": "minimize"}],
            "parameters": [{"name": "rate", "field": "engine.optimizer.learning_rate", "type": "float", "low": 0.01, "high": 0.5, "log": true}],
            "stopper": {"kind": "asha"}, "budget": {"max": 9}, "trials": 12,
        },
        "job": {"engine": {
            "model": {"kind": "mlp", "hidden": [8]}, "dataset": {"name": "fashion-mnist"}, "optimizer": {"kind": "sgd"}, "batch": 64,
        }},
    })
}

fn place(id: &Value, rest: &str) -> String {
    format!("/api/v1/studies/{}{rest}", id.as_str().expect("an id"))
}

async fn create_keyed(world: &World) -> Answer {
    let request = json_request(Method::POST, RED, "/api/v1/studies", &study("one"));
    world.send(keyed(request, "k")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn study_is_created_once_per_key_and_visible_to_its_tenant() {
    let world = World::new().await;
    let first = create_keyed(&world).await;
    assert_eq!(first.status, 201, "{}", first.text());
    let again = create_keyed(&world).await;
    assert_eq!((again.status.as_u16(), &again.body), (201, &first.body));
    assert_eq!(again.header("idempotency-replayed"), "true");
    let made: Value = first.json();
    assert_eq!(made["phase"], "created");
    assert_eq!(made["trials"]["limit"], 12);
    let path = place(&made["id"], "");
    assert_eq!(first.header("location"), path);
    let shown: Value = world.get(RED, &path).await.json();
    assert_eq!(shown, made);
    let page: Value = world.get(RED, "/api/v1/studies?name=one").await.json();
    assert_eq!(page["items"].as_array().map(Vec::len), Some(1));

    let page: Value = world.get(BLUE, "/api/v1/studies").await.json();
    assert_eq!(page["items"], json!([]));
    for rest in ["", "/trials", "/best", "/export"] {
        let path = place(&made["id"], rest);
        assert_eq!(world.get(BLUE, &path).await.status, 404, "{path}");
        assert_eq!(world.get(RED, &path).await.status, 200, "{path}");
    }
    for verb in ["/pause", "/resume", "/cancel"] {
        let path = place(&made["id"], verb);
        assert_eq!(world.post(BLUE, &path, &json!({})).await.status, 404);
        assert_eq!(world.post(RED, &path, &json!({})).await.status, 202);
    }
    assert_eq!(world.delete(BLUE, &path).await.status, 404);
    assert_eq!(world.delete(RED, &path).await.status, 409, "it is not over");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_study_is_refused_by_field_and_not_created() {
    let world = World::new().await;
    let mut wrong = study("wrong");
    wrong["search"]["parameters"][0]["low"] = json!(0.0);
    wrong["search"]["objectives"][0]["metric"] = json!("test_los");
    let refused = world.post(RED, "/api/v1/studies", &wrong).await;
    assert_eq!(refused.status, 422);
    let problem = refused.problem();
    assert!(problem.kind.ends_with("invalid-study"), "{problem:?}");
    let fields: Vec<&str> = problem
        .errors
        .iter()
        .map(|one| one.field.as_str())
        .collect();
    assert!(fields.contains(&"search.parameters[0].low"), "{fields:?}");
    assert!(
        fields.contains(&"search.objectives[0].metric"),
        "{fields:?}"
    );

    let mut unknown = study("wrong");
    unknown["search"]["sercher"] = json!({"kind": "tpe"});
    let refused = world.post(RED, "/api/v1/studies", &unknown).await;
    assert_eq!(refused.status, 422);
    assert!(refused.text().contains("sercher"), "{}", refused.text());

    let dry = world
        .post(RED, "/api/v1/studies?dry_run=true", &study("dry"))
        .await;
    assert_eq!(dry.status, 200);
    let page: Value = world.get(RED, "/api/v1/studies").await.json();
    assert_eq!(page["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn ask_and_tell_need_a_study_without_a_job() {
    let world = World::new().await;
    let made: Value = world
        .post(RED, "/api/v1/studies", &study("jobs"))
        .await
        .json();
    let ask = json!({"count": 1});
    let refused = world.post(RED, &place(&made["id"], "/ask"), &ask).await;
    assert_eq!(refused.status, 409);
    let mut outside = study("outside");
    outside.as_object_mut().expect("fields").remove("job");
    outside["search"]["objectives"][0]["metric"] = json!("anything");
    let made: Value = world.post(RED, "/api/v1/studies", &outside).await.json();
    let asked = world.post(RED, &place(&made["id"], "/ask"), &ask).await;
    assert_eq!(asked.status, 200, "{}", asked.text());
    assert_eq!(
        asked.json::<Value>()["trials"],
        json!([]),
        "no scheduler is there"
    );
    let told = json!({"results": [{"trial": 0, "step": 1, "values": {"something": 1.0}}]});
    let refused = world.post(RED, &place(&made["id"], "/tell"), &told).await;
    assert_eq!(refused.status, 422);
    assert_eq!(refused.problem().errors[0].field, "results[0].trial");
    let none = world
        .post(RED, &place(&made["id"], "/extend"), &json!({"trials": 0}))
        .await;
    assert_eq!(none.status, 422);
    // Together with the existing trials.
    let all = json!({"trials": 100_000});
    let refused = world.post(RED, &place(&made["id"], "/extend"), &all).await;
    assert_eq!(refused.status, 422);
    assert_eq!(refused.problem().errors[0].field, "trials");
}

async fn extend_keyed(world: &World, path: &str, trials: u32) -> Answer {
    let request = json_request(Method::POST, RED, path, &json!({"trials": trials}));
    world.send(keyed(request, "more")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn study_is_extended_once_per_key() {
    let world = World::new().await;
    let made: Value = world
        .post(RED, "/api/v1/studies", &study("one"))
        .await
        .json();
    let path = place(&made["id"], "/extend");
    let first = extend_keyed(&world, &path, 3).await;
    assert_eq!(first.status, 202, "{}", first.text());
    let again = extend_keyed(&world, &path, 3).await;
    assert_eq!((again.status.as_u16(), &again.body), (202, &first.body));
    assert_eq!(again.header("idempotency-replayed"), "true");
    assert_eq!(
        extend_keyed(&world, &path, 4).await.status,
        422,
        "another request"
    );
    let count = orders(&world).await;
    assert_eq!(count, 1, "one order is stated");
}

#[tokio::test(flavor = "multi_thread")]
async fn proposal_needs_an_external_searcher_and_valid_points() {
    let world = World::new().await;
    let own: Value = world
        .post(RED, "/api/v1/studies", &study("own"))
        .await
        .json();
    let good = json!({"trials": [{"parameters": {"rate": 0.1}}]});
    let refused = world.post(RED, &place(&own["id"], "/propose"), &good).await;
    assert_eq!(refused.status, 409);
    let mut outside = study("outside");
    outside["search"]["searcher"] = json!({"kind": "external"});
    let made: Value = world.post(RED, "/api/v1/studies", &outside).await.json();
    let path = place(&made["id"], "/propose");
    assert_eq!(world.post(RED, &path, &good).await.status, 202);
    assert_eq!(world.post(BLUE, &path, &good).await.status, 404);
    let bad = json!({"trials": [{"parameters": {"rate": 0.1}}, {"parameters": {"rate": 5.0}}]});
    let refused = world.post(RED, &path, &bad).await;
    assert_eq!(refused.status, 422);
    assert_eq!(refused.problem().errors[0].field, "trials[1].parameters");
    outside["search"]["stopper"] = json!({"kind": "hyperband"});
    let refused = world.post(RED, "/api/v1/studies", &outside).await;
    assert_eq!(refused.problem().errors[0].field, "search.stopper");
}

#[tokio::test(flavor = "multi_thread")]
async fn pbt_parameters_must_not_affect_the_copied_state() {
    let world = World::new().await;
    let mut pbt = study("pbt");
    pbt["search"]["searcher"] = json!({"kind": "random"});
    pbt["search"]["stopper"] = json!({"kind": "pbt", "population": 4, "interval": 1});
    let made = world.post(RED, "/api/v1/studies?dry_run=true", &pbt).await;
    assert_eq!(made.status, 200, "{}", made.text());
    let mut wider = pbt.clone();
    wider["search"]["parameters"][0] = json!({"name": "width", "field": "engine.model.hidden[0]", "type": "int", "low": 8, "high": 64});
    let refused = world.post(RED, "/api/v1/studies", &wider).await;
    assert_eq!(refused.status, 422);
    assert_eq!(
        refused.problem().errors[0].field,
        "search.parameters[0].field"
    );
    // Within an epoch of one batch size there is no same place for another one.
    let batch =
        json!({"name": "batch", "field": "engine.batch", "type": "int", "low": 16, "high": 64});
    let mut in_steps = pbt.clone();
    let parameters = in_steps["search"]["parameters"].as_array_mut();
    parameters.expect("a list").push(batch);
    let epochs = world
        .post(RED, "/api/v1/studies?dry_run=true", &in_steps)
        .await;
    assert_eq!(epochs.status, 200, "{}", epochs.text());
    in_steps["search"]["budget"] = json!({"max": 100, "unit": "steps"});
    let refused = world.post(RED, "/api/v1/studies", &in_steps).await;
    assert_eq!(refused.status, 422, "{}", refused.text());
    let error = &refused.problem().errors[0];
    assert!(error.value.contains("engine.batch"), "{error:?}");
    assert!(error.expected.contains("epochs"), "{error:?}");
    let mut begins = pbt;
    begins["job"]["from"] = json!({"job": "00000000-0000-0000-0000-0000000000aa"});
    let refused = world.post(RED, "/api/v1/studies", &begins).await;
    assert_eq!(refused.problem().errors[0].field, "job.from");
}

async fn orders(world: &World) -> usize {
    let mut tx = pool::begin(&world.scheduler).await.expect("a transaction");
    let due = search::due(&mut tx).await.expect("read");
    let orders = search::look(&mut tx, due[0]).await.expect("read").orders;
    let numbers: Vec<i64> = orders.iter().map(|(number, _)| *number).collect();
    search::forget(&mut tx, &numbers).await.expect("removed");
    orders.len()
}

/// A trial with a budget of 3, after a first rung that ended at 1.
async fn second_rung(world: &World, study: StudyId) {
    let point = TrialPoint {
        step: 1,
        values: vec![Some(0.5)],
    };
    let trial = trial_rows::TrialWrite {
        number: 0,
        job_id: None,
        state: TrialPhase::Running,
        parameters: [("rate".to_owned(), json!(0.1))].into(),
        seed: 0,
        budget: 3,
        rung: 1,
        from: None,
        reports: vec![point.clone()],
        rungs: vec![point.clone()],
        outcome: Some(point),
        best: false,
        fed_step: None,
        end_fed: None,
        failure: None,
        open: true,
    };
    let saved = StudyStepChanges {
        phase: "running",
        cancelled: false,
        limit: 100,
        proposed: 0,
        seq: 0,
        before: 0,
        taken: vec![],
        events: vec![],
        state: None,
        created: vec![trial],
        changed: vec![],
        has_jobs: false,
        durable: true,
    };
    let mut conn = world.scheduler.acquire().await.expect("a connection");
    let done = save(&mut conn, study, &saved, at(0)).await;
    assert!(done.expect("written"));
}

/// Returns a result with these further fields.
fn result_with(further: &Value) -> Value {
    let mut result = json!({"trial": 0, "values": {"test_loss": 0.4}});
    for (key, value) in further.as_object().expect("fields") {
        result[key] = value.clone();
    }
    json!({"results": [result]})
}

#[tokio::test(flavor = "multi_thread")]
async fn finished_result_below_the_budget_is_refused() {
    let world = World::new().await;
    let mut outside = study("outside");
    outside.as_object_mut().expect("fields").remove("job");
    let made: Value = world.post(RED, "/api/v1/studies", &outside).await.json();
    let id = made["id"].as_str().expect("an id").parse().expect("a UUID");
    second_rung(&world, id).await;
    let path = place(&made["id"], "/tell");
    let short = world
        .post(RED, &path, &result_with(&json!({"step": 2})))
        .await;
    assert_eq!(short.status, 422);
    assert_eq!(short.problem().errors[0].field, "results[0].step");
    let odd = json!({"step": 2, "state": "running", "exhausted": true});
    let odd = world.post(RED, &path, &result_with(&odd)).await;
    assert_eq!(odd.problem().errors[0].field, "results[0].exhausted");
    for right in [
        json!({"step": 2, "state": "running"}),
        json!({"step": 2, "exhausted": true}),
        json!({"step": 3}),
        // The result of its first rung may be repeated.
        json!({"step": 1}),
    ] {
        let told = world.post(RED, &path, &result_with(&right)).await;
        assert_eq!(told.status, 202, "{right}: {}", told.text());
    }
}

fn tell_and_ask(ask: Value) -> Value {
    let result = json!({"trial": 0, "step": 3, "values": {"test_loss": 0.4}});
    json!({"results": [result], "ask": ask})
}

#[tokio::test(flavor = "multi_thread")]
async fn tell_may_ask_in_the_same_request() {
    let world = World::new().await;
    let mut outside = study("outside");
    outside.as_object_mut().expect("fields").remove("job");
    let made: Value = world.post(RED, "/api/v1/studies", &outside).await.json();
    let id = made["id"].as_str().expect("an id").parse().expect("a UUID");
    second_rung(&world, id).await;
    let path = place(&made["id"], "/tell");
    let refused = world
        .post(RED, &path, &tell_and_ask(json!({"count": 0})))
        .await;
    assert_eq!(refused.status, 422);
    assert_eq!(refused.problem().errors[0].field, "ask.count");
    let mut conn = world.scheduler.acquire().await.expect("a connection");
    let due = search::due(&mut conn).await.expect("read");
    assert!(due.is_empty(), "nothing was told");
    let answer = world.post(RED, &path, &tell_and_ask(json!({}))).await;
    assert_eq!(answer.status, 202, "{}", answer.text());
    let answer: Value = answer.json();
    assert_eq!(answer["asked"]["trials"][0]["number"], 0);
    assert_eq!(answer["asked"]["phase"], "running");
    assert_eq!(orders(&world).await, 1);
    let again: Value = world
        .post(RED, &path, &tell_and_ask(json!({})))
        .await
        .json();
    assert_eq!(again["asked"]["trials"], json!([]), "it was given out");
}
