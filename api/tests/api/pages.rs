//! Lists in pages: every item once, in order, also with concurrent changes.

use crate::world::{RED, World, request};
use axum::body::Body;
use axum::http::Method;
use serde_json::Value;

async fn walk(world: &World, path: &str, between: impl AsyncFn()) -> Vec<String> {
    let mut seen = Vec::new();
    let mut next = String::new();
    loop {
        let page: Value = world.get(RED, &format!("{path}{next}")).await.json();
        for item in page["items"].as_array().expect("a list") {
            seen.push(
                item["name"]
                    .as_str()
                    .or(item["cursor"].as_str())
                    .expect("a name")
                    .to_owned(),
            );
        }
        let Some(token) = page["continue"].as_str() else {
            return seen;
        };
        next = format!("&continue={token}");
        between().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_list_each_job_once_despite_new_ones() {
    let world = World::new().await;
    for number in 0..7 {
        world.submit(&format!("job-{number}")).await;
    }
    let seen = walk(&world, "/api/v1/jobs?limit=3", async || {
        world.submit("late").await;
    })
    .await;
    assert_eq!(
        seen,
        [
            "job-6", "job-5", "job-4", "job-3", "job-2", "job-1", "job-0"
        ]
    );
    let exact = walk(&world, "/api/v1/jobs?limit=500&name=job-3", async || {}).await;
    assert_eq!(exact, ["job-3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_filtered_by_id_phase_label_and_name() {
    let world = World::new().await;
    let first = world.submit("first").await;
    let second = world.submit("second").await;
    world.submit("third").await;
    let pause = request(
        Method::POST,
        RED,
        &format!("/api/v1/jobs/{first}/pause"),
        Body::empty(),
    );
    assert_eq!(world.send(pause).await.status, 202);
    world.step(first, 0, muster_model::plan::Action::Hold).await;
    let names =
        async |query: &str| walk(&world, &format!("/api/v1/jobs?{query}"), async || {}).await;
    assert_eq!(names("phase=paused").await, ["first"]);
    assert_eq!(
        names("phase=paused&phase=queued").await,
        ["third", "second", "first"]
    );
    assert_eq!(names(&format!("id={first}")).await, ["first"]);
    assert_eq!(
        names(&format!(
            "id={first}&id={second}&id=01890000-0000-7000-8000-000000000001"
        ))
        .await,
        ["second", "first"]
    );
    assert_eq!(
        names(&format!("id={second}&phase=paused")).await,
        Vec::<String>::new()
    );
    assert_eq!(names("label=team%3Dsecond").await, ["second"]);
    assert_eq!(names("label=team%3Dnone").await, Vec::<String>::new());
    assert_eq!(names("name=first&phase=queued").await, Vec::<String>::new());
    let digits = second.0.simple().to_string();
    let short_id = format!("short_id={}", &digits[24..]);
    assert_eq!(names(&short_id).await, ["second"]);
    assert_eq!(names(&format!("short_id={digits}")).await, ["second"]);
    let begin = format!("short_id={}", &digits[..8]);
    assert_eq!(names(&begin).await, Vec::<String>::new());
    assert_eq!(names("user=nobody").await, Vec::<String>::new());
    let all = ["third", "second", "first"];
    assert_eq!(names("submitted_since=2020-01-01T00:00:00Z").await, all);
    let later = names("submitted_since=2120-01-01T00:00:00Z").await;
    assert_eq!(later, Vec::<String>::new());
    assert_eq!(names("trials=false").await, all);
    for wrong in [
        "short_id=abc",
        "short_id=%25%25%25%25",
        "trials=1",
        "submitted_since=now",
    ] {
        let answer = world.get(RED, &format!("/api/v1/jobs?{wrong}")).await;
        assert_eq!(answer.status, 400, "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_events_follow_their_cursors() {
    let world = World::new().await;
    let job = world.submit("told").await;
    world.run(job, 0, 0).await;
    let all = walk(
        &world,
        &format!("/api/v1/jobs/{job}/events?limit=500"),
        async || {},
    )
    .await;
    let in_twos = walk(
        &world,
        &format!("/api/v1/jobs/{job}/events?limit=2"),
        async || {},
    )
    .await;
    assert!(all.len() >= 4, "{all:?}");
    assert_eq!(in_twos, all);
    let rest: Value = world
        .get(RED, &format!("/api/v1/jobs/{job}/events?after={}", all[1]))
        .await
        .json();
    assert_eq!(rest["items"][0]["cursor"], all[2]);
}
