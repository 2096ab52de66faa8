//! Arrays of jobs of which a limited number run at the same time.

use crate::world::{BLUE, RED, World, document};
use muster_model::id::JobId;
use muster_model::plan::Action;
use serde_json::{Value, json};

async fn submit(world: &World, token: &str, name: &str, change: Value) -> (JobId, Value) {
    let mut document = document(name);
    document["array"] = json!({ "name": "folds", "parallel": 2 });
    for (field, value) in change.as_object().expect("an object") {
        document[field] = value.clone();
    }
    let answer = world.post(token, "/api/v1/jobs", &document).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let job: Value = answer.json();
    let id = job["id"].as_str().expect("an id").parse();
    (id.expect("a UUID"), job)
}

async fn reason(world: &World, job: JobId) -> String {
    let path = format!("/api/v1/jobs/{job}");
    let view: Value = world.get(RED, &path).await.json();
    view["waiting"]["reason"]
        .as_str()
        .unwrap_or("none")
        .to_owned()
}

async fn reasons(world: &World, jobs: &[JobId]) -> Vec<String> {
    let mut found = Vec::new();
    for job in jobs {
        found.push(reason(world, *job).await);
    }
    found
}

const READY: &str = "NotConsidered";
const HELD: &str = "WaitingForArray";

#[tokio::test(flavor = "multi_thread")]
async fn ends_let_the_next_jobs_of_the_array_start() {
    let world = World::new().await;
    let mut jobs = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        jobs.push(submit(&world, RED, name, json!({})).await.0);
    }
    let (_, theirs) = submit(&world, BLUE, "theirs", json!({})).await;
    assert_eq!(theirs["waiting"]["reason"], READY, "an array of a tenant");
    assert_eq!(
        reasons(&world, &jobs).await,
        [READY, READY, HELD, HELD, HELD]
    );
    let path = format!("/api/v1/jobs/{}", jobs[2]);
    let held: Value = world.get(RED, &path).await.json();
    let message = held["waiting"]["message"].as_str().expect("text");
    assert!(message.contains("fewer than 2 earlier jobs"), "{message}");
    // An end of any kind counts, in any order.
    let (worker, shard) = world.run(jobs[1], 0, 0).await;
    world.succeed(jobs[1], 1, &[worker, shard]).await;
    assert_eq!(reasons(&world, &jobs[2..]).await, [READY, HELD, HELD]);
    world.step(jobs[0], 0, Action::Cancel).await;
    assert_eq!(reasons(&world, &jobs[2..]).await, [READY, READY, HELD]);
    // A held job that is cancelled makes no room.
    let cancel = format!("/api/v1/jobs/{}/cancel", jobs[4]);
    assert_eq!(world.post(RED, &cancel, &json!({})).await.status, 202);
    world.step(jobs[4], 0, Action::Cancel).await;
    let late = submit(&world, RED, "late", json!({})).await.0;
    assert_eq!(reason(&world, late).await, HELD);
    world.step(jobs[2], 0, Action::Cancel).await;
    assert_eq!(reason(&world, late).await, READY);
}

#[tokio::test(flavor = "multi_thread")]
async fn job_may_wait_for_others_and_for_its_array() {
    let world = World::new().await;
    let first = world.submit("first").await;
    let after = json!({ "after": [{ "job": first, "on": "end" }], "array": { "name": "one", "parallel": 1 } });
    let job = submit(&world, RED, "job", after.clone()).await.0;
    let next = submit(&world, RED, "next", after).await.0;
    let waits = "WaitingForJobs";
    assert_eq!(reasons(&world, &[job, next]).await, [waits, waits]);
    world.step(first, 0, Action::Cancel).await;
    assert_eq!(reasons(&world, &[job, next]).await, [READY, HELD]);
    world.step(job, 0, Action::Cancel).await;
    assert_eq!(reason(&world, next).await, READY);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_submissions_do_not_exceed_the_limit() {
    let world = World::new().await;
    let submissions = (0..12).map(|number| {
        let world = &world;
        async move {
            submit(world, RED, &format!("fold-{number}"), json!({}))
                .await
                .0
        }
    });
    let jobs = futures::future::join_all(submissions).await;
    let ready = |found: Vec<String>| found.iter().filter(|reason| *reason == READY).count();
    assert_eq!(ready(reasons(&world, &jobs).await), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_arrays_are_refused_by_field() {
    let world = World::new().await;
    for (array, field) in [
        (json!({ "name": "Folds", "parallel": 2 }), "array.name"),
        (json!({ "name": "folds", "parallel": 0 }), "array.parallel"),
        (json!({ "name": "folds" }), "array.parallel"),
    ] {
        let mut document = document("job");
        document["array"] = array;
        let refused = world.post(RED, "/api/v1/jobs", &document).await;
        assert_eq!(refused.status, 422);
        let problem: Value = refused.json();
        assert_eq!(problem["errors"][0]["field"], field, "{problem}");
    }
}
