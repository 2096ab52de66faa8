//! Families of jobs: each tenant lists and forgets its own.

use crate::world::{ADMIN, BLUE, RED, World, document, json_request, progress};
use axum::http::Method;
use muster_model::id::JobId;
use serde_json::{Value, json};

/// Submits a job with this batch as a member, runs it on a GPU and reports two samples, of which
/// the first one measures the start.
async fn measured(world: &World, token: &str, batch: u32, gpu: u32) {
    let mut document = document("measured");
    document["engine"]["batch"] = batch.into();
    let answer = world.post(token, "/api/v1/jobs", &document).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let job: Value = answer.json();
    let job: JobId = job["id"].as_str().expect("an id").parse().expect("a UUID");
    let (worker, _) = world.run(job, 0, gpu).await;
    world
        .tell(worker, 1, 0, vec![progress(1), progress(2)])
        .await;
}

async fn page(world: &World, token: &str, query: &str) -> Value {
    let answer = world.get(token, &format!("/api/v1/families{query}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

async fn families(world: &World, token: &str) -> Vec<Value> {
    let page = page(world, token, "").await;
    page["items"].as_array().expect("a list").clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn tenant_lists_and_forgets_only_its_own_families() {
    let world = World::new().await;
    measured(&world, RED, 64, 0).await;
    measured(&world, RED, 64, 1).await;
    measured(&world, BLUE, 64, 2).await;

    let of_red = families(&world, RED).await;
    let [family] = of_red.as_slice() else {
        panic!("both jobs are of one family: {of_red:?}")
    };
    assert_eq!(family["title"], "mlp on fashion-mnist, batch 64");
    assert_eq!(family["jobs"], 2);
    let speed = &family["speeds"][0];
    assert_eq!(speed["gpu_kind"], "cpu");
    assert_eq!((&speed["samples"], &speed["nodes"]), (&2.into(), &1.into()));
    let steps_per_s = speed["steps_per_s"].as_f64().expect("a number");
    assert!((steps_per_s - 10.0).abs() < 1e-9);

    // The documents are equal, so both tenants' families have the same key.
    let key = family["family"].as_str().expect("a key");
    assert_eq!(families(&world, BLUE).await[0]["family"], key);
    let path = format!("/api/v1/families/{key}");
    assert_eq!(world.delete(BLUE, &path).await.status, 204);
    assert!(families(&world, BLUE).await.is_empty());
    assert_eq!(families(&world, RED).await, of_red);
    assert_eq!(world.delete(BLUE, &path).await.status, 404);
    assert_eq!(world.delete(RED, &path).await.status, 204);
    assert!(families(&world, RED).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn families_come_in_pages_newest_first() {
    let world = World::new().await;
    for (batch, gpu) in [(32, 0), (64, 1), (128, 2)] {
        measured(&world, RED, batch, gpu).await;
    }
    let first = page(&world, RED, "?limit=2").await;
    let next = first["continue"].as_str().expect("a further page");
    let second = page(&world, RED, &format!("?limit=2&continue={next}")).await;
    let pages = [&first, &second].map(|page| page["items"].as_array().expect("a list").clone());
    let titles: Vec<Value> = pages
        .concat()
        .iter()
        .map(|family| family["title"].clone())
        .collect();
    let batches = [128, 64, 32].map(|batch| format!("mlp on fashion-mnist, batch {batch}"));
    assert_eq!(titles, batches);
    assert!(second["continue"].is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn only_administrators_let_a_tenant_share_families() {
    let world = World::new().await;
    let change = async |token: &str, body: Value| {
        let path = "/api/v1/tenants/red";
        world
            .send(json_request(Method::PATCH, token, path, &body))
            .await
    };
    let wrong = change(ADMIN, json!({ "shares_families": "yes" })).await;
    assert_eq!(wrong.status, 422, "{}", wrong.text());
    assert_eq!(wrong.problem().errors[0].field, "shares_families");
    let by_member = change(RED, json!({ "shares_families": true })).await;
    assert_eq!(by_member.status, 403, "{}", by_member.text());
    let shared = change(ADMIN, json!({ "shares_families": true })).await;
    assert_eq!(shared.status, 200, "{}", shared.text());
    assert_eq!(shared.json::<Value>()["shares_families"], json!(true));
    // Another change leaves it as it is.
    let heavier = change(ADMIN, json!({ "weight": 2.0 })).await;
    assert_eq!(heavier.json::<Value>()["shares_families"], json!(true));
}
