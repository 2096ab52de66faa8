//! Studies by REST, before any scheduler has seen them: what is created, refused, stated, and whose it is.

use crate::world::{BLUE, RED, World, json_request};
use axum::http::Method;
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

#[tokio::test(flavor = "multi_thread")]
async fn a_study_is_created_once_under_its_key_and_seen_by_its_tenant_alone() {
    let world = World::new().await;
    let keyed = |token| {
        let mut request = json_request(Method::POST, token, "/api/v1/studies", &study("one"));
        let key = "k".parse().expect("a header");
        request.headers_mut().insert("idempotency-key", key);
        request
    };
    let first = world.send(keyed(RED)).await;
    assert_eq!(first.status, 201, "{}", first.text());
    let again = world.send(keyed(RED)).await;
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
async fn what_is_wrong_is_named_by_its_field_and_nothing_is_created() {
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
async fn only_studies_without_a_job_are_asked_and_told() {
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
    // Together with those that it has.
    let all = json!({"trials": 100_000});
    let refused = world.post(RED, &place(&made["id"], "/extend"), &all).await;
    assert_eq!(refused.status, 422);
    assert_eq!(refused.problem().errors[0].field, "trials");
}
