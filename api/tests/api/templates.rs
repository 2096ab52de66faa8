//! Templates: parameters, submissions and refusals.

use crate::world::{BLUE, RED, World, document, json_request, keyed};
use axum::http::Method;
use muster_model::view::{JobView, Page, Problem, TemplateView};
use serde_json::{Value, json};

const PATH: &str = "/api/v1/templates/train";

fn template() -> Value {
    let mut job = document("train-${tag}");
    job["engine"]["optimizer"]["learning_rate"] = json!("${lr}");
    job["stop"]["epochs"] = json!("${epochs}");
    json!({
        "description": "Trains the model",
        "parameters": [
            { "name": "lr", "type": "float", "default": 0.1 },
            { "name": "epochs", "type": "int", "choices": [1, 3] },
            { "name": "tag", "type": "string", "default": "x" },
        ],
        "job": job,
    })
}

async fn put(world: &World, document: &Value) -> crate::world::Answer {
    world
        .send(json_request(Method::PUT, RED, PATH, document))
        .await
}

async fn submit(world: &World, query: &str, values: Value) -> crate::world::Answer {
    let path = format!("{PATH}/submit{query}");
    world
        .post(RED, &path, &json!({ "parameters": values }))
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn job_has_the_filled_document_and_the_label() {
    let world = World::new().await;
    let stored = put(&world, &template()).await;
    assert_eq!(stored.status, 200, "{}", stored.text());
    assert_eq!(stored.json::<TemplateView>().version, 1);
    let values = json!({ "epochs": 3, "lr": 0.01, "tag": "a-1" });
    let answer = submit(&world, "", values.clone()).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let job: JobView = answer.json();
    assert_eq!(job.name, "train-a-1");
    assert_eq!(job.labels["template"], "train");
    assert_eq!(job.spec.stop.epochs, Some(3));
    let spec = serde_json::to_value(&job.spec).expect("JSON");
    assert_eq!(spec["engine"]["optimizer"]["learning_rate"], 0.01);
    let path = format!("/api/v1/jobs/{}", job.id);
    let read: JobView = world.get(RED, &path).await.json();
    assert_eq!(read.spec, job.spec);
    let dry = submit(&world, "?dry_run=true", values).await;
    assert_eq!(dry.status, 200);
    let jobs: Page<JobView> = world.get(RED, "/api/v1/jobs").await.json();
    assert_eq!(jobs.items.len(), 1, "a dry run submits nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_values_are_refused_by_field() {
    let world = World::new().await;
    assert_eq!(put(&world, &template()).await.status, 200);
    for (values, kind, field) in [
        (json!({}), "invalid-body", "parameters.epochs"),
        (json!({ "epochs": 2 }), "invalid-body", "parameters.epochs"),
        (
            json!({ "epochs": "3" }),
            "invalid-body",
            "parameters.epochs",
        ),
        (
            json!({ "epochs": 3, "rate": 1 }),
            "invalid-body",
            "parameters.rate",
        ),
        (
            json!({ "epochs": 3, "tag": "UPPER" }),
            "invalid-job",
            "name",
        ),
        (
            json!({ "epochs": 3, "tag": "x\nretries: 9" }),
            "invalid-job",
            "name",
        ),
    ] {
        let refused = submit(&world, "", values).await;
        assert_eq!(refused.status, 422, "{}", refused.text());
        let problem: Problem = refused.json();
        assert_eq!(problem.kind, format!("urn:muster:problem:{kind}"));
        assert_eq!(problem.errors[0].field, field);
    }
    let jobs: Page<JobView> = world.get(RED, "/api/v1/jobs").await.json();
    assert_eq!(jobs.items, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_templates_are_refused_when_they_are_stored() {
    let world = World::new().await;
    let mut unknown = template();
    unknown["job"]["name"] = json!("${tga}");
    let mut invalid = template();
    invalid["job"]["retries"] = json!(1000);
    let mut field = template();
    field["job"]["scael"] = json!({});
    for (template, field) in [
        (unknown, "job.name"),
        (invalid, "retries"),
        (field, "scael"),
    ] {
        let refused = put(&world, &template).await;
        assert_eq!(refused.status, 422, "{}", refused.text());
        assert_eq!(refused.json::<Problem>().errors[0].field, field);
    }
    assert_eq!(world.get(RED, PATH).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn repetition_is_answered_after_a_change_of_the_template() {
    let world = World::new().await;
    assert_eq!(put(&world, &template()).await.status, 200);
    let values = json!({ "parameters": { "epochs": 3 } });
    let path = format!("{PATH}/submit");
    let request = || keyed(json_request(Method::POST, RED, &path, &values), "one");
    let first = world.send(request()).await;
    assert_eq!(first.status, 201, "{}", first.text());
    assert_eq!(world.delete(RED, PATH).await.status, 204);
    let again = world.send(request()).await;
    assert_eq!(again.header("idempotency-replayed"), "true");
    assert_eq!(again.body, first.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn templates_belong_to_their_tenant() {
    let world = World::new().await;
    assert_eq!(put(&world, &template()).await.status, 200);
    let replaced: TemplateView = put(&world, &template()).await.json();
    assert_eq!(replaced.version, 2);
    let list = |token| world.get(token, "/api/v1/templates");
    let red: Page<TemplateView> = list(RED).await.json();
    let blue: Page<TemplateView> = list(BLUE).await.json();
    assert_eq!((red.items.len(), blue.items.len()), (1, 0));
    let near = world.get(RED, "/api/v1/templates/trian").await;
    assert!(
        near.text().contains("did you mean train?"),
        "{}",
        near.text()
    );
    assert_eq!(world.delete(BLUE, PATH).await.status, 404);
    assert_eq!(world.delete(RED, PATH).await.status, 204);
    assert_eq!(world.delete(RED, PATH).await.status, 404);
}
