//! A request that is repeated under one key submits once.

use crate::world::{BLUE, RED, World, document, json_request};
use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::Value;

fn keyed(token: &str, key: &str, document: &Value) -> Request<Body> {
    let mut request = json_request(Method::POST, token, "/api/v1/jobs", document);
    request
        .headers_mut()
        .insert("idempotency-key", key.parse().expect("a header"));
    request
}

async fn jobs(world: &World) -> usize {
    world.get(RED, "/api/v1/jobs").await.json::<Value>()["items"]
        .as_array()
        .expect("a list")
        .len()
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_key_replays_the_answer_or_refuses_another_request() {
    let world = World::new().await;
    let first = world.send(keyed(RED, "k1", &document("once"))).await;
    assert_eq!(first.status, 201);
    let again = world.send(keyed(RED, "k1", &document("once"))).await;
    assert_eq!(again.status, 201);
    assert_eq!(again.body, first.body, "byte for byte");
    assert_eq!(again.header("location"), first.header("location"));
    assert_eq!(
        (
            first.header("idempotency-replayed"),
            again.header("idempotency-replayed")
        ),
        ("", "true")
    );
    let other = world.send(keyed(RED, "k1", &document("twice"))).await;
    assert_eq!(other.status, 422);
    assert!(other.problem().kind.ends_with("idempotency-key-reused"));
    assert_eq!(
        world
            .send(keyed(BLUE, "k1", &document("twice")))
            .await
            .status,
        201,
        "keys are each tenant's own"
    );
    assert_eq!(jobs(&world).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_request_does_not_use_its_key() {
    let world = World::new().await;
    assert_eq!(
        world
            .send(keyed(RED, "k", &document("Bad Name")))
            .await
            .status,
        422
    );
    assert_eq!(
        world.send(keyed(RED, "k", &document("good"))).await.status,
        201
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_requests_under_one_key_submit_once() {
    let world = World::new().await;
    let document = document("crowd");
    let all =
        futures::future::join_all((0..12).map(|_| world.send(keyed(RED, "k", &document)))).await;
    assert!(
        all.iter()
            .all(|answer| answer.status == 201 && answer.body == all[0].body)
    );
    assert_eq!(
        all.iter()
            .filter(|answer| answer.header("idempotency-replayed").is_empty())
            .count(),
        1
    );
    assert_eq!(jobs(&world).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn dry_run_answers_and_stores_nothing() {
    let world = World::new().await;
    let before = world.everything().await;
    let answer = world
        .post(RED, "/api/v1/jobs?dry_run=true", &document("dry"))
        .await;
    assert_eq!(answer.status, 200);
    let job: Value = answer.json();
    assert_eq!(
        (job["name"].as_str(), job["phase"].as_str()),
        (Some("dry"), Some("queued"))
    );
    assert_eq!(job["spec"]["retries"], 3, "defaults are filled in");
    assert_eq!(world.everything().await, before);
}
