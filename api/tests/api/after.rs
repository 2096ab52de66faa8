//! Jobs that start after others have ended.

use crate::world::{BLUE, RED, World, document};
use muster_model::id::JobId;
use muster_model::plan::Action;
use serde_json::{Value, json};

/// Submits a job after others, and returns the status and the answer.
async fn submit_after(world: &World, name: &str, after: Value) -> (u16, Value) {
    let mut document = document(name);
    document["after"] = after;
    let answer = world.post(RED, "/api/v1/jobs", &document).await;
    (answer.status.as_u16(), answer.json())
}

async fn view(world: &World, job: &str) -> Value {
    world.get(RED, &format!("/api/v1/jobs/{job}")).await.json()
}

async fn kinds(world: &World, job: &str) -> Vec<String> {
    let path = format!("/api/v1/jobs/{job}/events");
    let page: Value = world.get(RED, &path).await.json();
    let items = page["items"].as_array().expect("events").iter();
    let kinds = items.map(|event| event["event"]["kind"].as_str().expect("a kind").to_owned());
    kinds.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_job_cancels_those_that_wait_for_its_success() {
    let world = World::new().await;
    let first = world.submit("first").await;
    let other = world.submit("other").await;
    let success = submit_after(&world, "success", json!([{ "job": first }]))
        .await
        .1;
    let end = json!([{ "job": first, "on": "end" }]);
    let any = submit_after(&world, "any", end.clone()).await.1;
    let both = json!([{ "job": first, "on": "end" }, { "job": other }]);
    let both = submit_after(&world, "both", both).await.1;
    let id = |job: &Value| job["id"].as_str().expect("an id").to_owned();
    assert_eq!(success["waiting"]["reason"], "WaitingForJobs");
    let message = success["waiting"]["message"].as_str().expect("text");
    assert!(message.contains(&first.to_string()), "{message}");
    world.step(first, 0, Action::Cancel).await;
    let cancelled = view(&world, &id(&success)).await;
    assert_eq!(cancelled["intent"], "cancel");
    let kinds = kinds(&world, &id(&success)).await;
    assert!(kinds.contains(&"after_failed".to_owned()), "{kinds:?}");
    let released = view(&world, &id(&any)).await;
    assert_eq!(
        (&released["intent"], &released["waiting"]["reason"]),
        (&json!("run"), &json!("NotConsidered"))
    );
    let waits = view(&world, &id(&both)).await;
    let message = waits["waiting"]["message"].as_str().expect("text");
    assert_eq!(message, format!("starts after {other}"));
    // A job that has ended is no obstacle, or can never be what the document wants.
    let (status, late) = submit_after(&world, "late", end).await;
    assert_eq!(
        (status, &late["waiting"]["reason"]),
        (201, &json!("NotConsidered"))
    );
    let (status, refused) = submit_after(&world, "never", json!([{ "job": first }])).await;
    assert_eq!(status, 422);
    assert_eq!(refused["errors"][0]["field"], "after[0].job");
}

#[tokio::test(flavor = "multi_thread")]
async fn job_starts_after_the_last_success() {
    let world = World::new().await;
    let [first, second] = [world.submit("first").await, world.submit("second").await];
    let after = json!([{ "job": first }, { "job": second }]);
    let job = submit_after(&world, "job", after).await.1;
    let id: JobId = job["id"].as_str().expect("an id").parse().expect("a UUID");
    for (gpu, earlier) in [first, second].into_iter().enumerate() {
        let waits = view(&world, &id.to_string()).await;
        assert_eq!(waits["waiting"]["reason"], "WaitingForJobs");
        let (worker, shard) = world
            .run(earlier, 0, u32::try_from(gpu).expect("small"))
            .await;
        world.succeed(earlier, 1, &[worker, shard]).await;
    }
    let released = view(&world, &id.to_string()).await;
    assert_eq!(released["waiting"]["reason"], "NotConsidered");
}

#[tokio::test(flavor = "multi_thread")]
async fn job_of_another_tenant_is_no_condition() {
    let world = World::new().await;
    let theirs = world.post(BLUE, "/api/v1/jobs", &document("theirs")).await;
    let theirs: Value = theirs.json();
    let after = json!([{ "job": theirs["id"], "on": "end" }]);
    let (status, refused) = submit_after(&world, "job", after).await;
    assert_eq!(status, 422);
    assert_eq!(
        refused["errors"][0]["expected"],
        "a job of yours that was not deleted"
    );
}
