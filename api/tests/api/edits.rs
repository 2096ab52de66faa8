//! Changes of a job's size range and priority after its submission.

use crate::world::{Answer, BLUE, RED, World, document, json_request};
use axum::http::Method;
use muster_model::plan::Action;
use serde_json::{Value, json};

async fn edit(world: &World, token: &str, id: impl std::fmt::Display, body: &Value) -> Answer {
    let path = format!("/api/v1/jobs/{id}");
    world
        .send(json_request(Method::PATCH, token, &path, body))
        .await
}

/// Returns kinds and bodies of the job's events, oldest first.
async fn events(world: &World, id: impl std::fmt::Display) -> Vec<Value> {
    let path = format!("/api/v1/jobs/{id}/events");
    let page: Value = world.get(RED, &path).await.json();
    let items = page["items"].as_array().expect("events").clone();
    items.into_iter().map(|one| one["event"].clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn range_and_priority_change_while_waiting_and_running() {
    let world = World::new().await;
    let id = world.submit("sized").await;
    let answer = edit(
        &world,
        RED,
        id,
        &json!({"workers": {"min": 2, "max": 6}, "priority": 5}),
    )
    .await;
    assert_eq!(answer.status, 202, "{}", answer.text());
    let job: Value = world.get(RED, &format!("/api/v1/jobs/{id}")).await.json();
    assert_eq!(answer.json::<Value>(), job, "what was answered is so");
    assert_eq!(
        (&job["workers"]["min"], &job["workers"]["max"]),
        (&json!(2), &json!(6))
    );
    assert_eq!(job["spec"]["scale"]["workers"], json!({"min": 2, "max": 6}));
    assert_eq!((&job["priority"], &job["edits"]), (&json!(5), &json!(1)));

    let same = edit(&world, RED, id, &json!({"priority": 5})).await;
    assert_eq!(same.json::<Value>()["edits"], 1, "nothing changed");
    world.run(id, 0, 1).await;
    let smaller = edit(&world, RED, id, &json!({"workers": {"min": 1, "max": 1}})).await;
    assert_eq!(smaller.json::<Value>()["edits"], 2);
    let more = json!({"ps_shards": {"min": 1, "max": 3}});
    let shards = edit(&world, RED, id, &more).await.json::<Value>();
    assert_eq!(
        shards["spec"]["scale"]["ps_shards"],
        json!({"min": 1, "max": 3})
    );
    let edited: Vec<Value> = events(&world, id)
        .await
        .into_iter()
        .filter(|event| event["kind"] == "job_edited")
        .collect();
    assert_eq!(
        edited,
        [
            json!({"kind": "job_edited", "edits": 1, "workers": {"min": 2, "max": 6}, "ps_shards": {"min": 1, "max": 1}, "priority": 5, "by": {"user": "rob"}}),
            json!({"kind": "job_edited", "edits": 2, "workers": {"min": 1, "max": 1}, "ps_shards": {"min": 1, "max": 1}, "priority": 5, "by": {"user": "rob"}}),
            json!({"kind": "job_edited", "edits": 3, "workers": {"min": 1, "max": 1}, "ps_shards": {"min": 1, "max": 3}, "priority": 5, "by": {"user": "rob"}}),
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn change_with_stale_edits_is_refused() {
    let world = World::new().await;
    let id = world.submit("shared").await;
    let once = json!({"priority": 1, "edits": 0});
    assert_eq!(edit(&world, RED, id, &once).await.status, 202);
    let problem = edit(&world, RED, id, &json!({"priority": 2, "edits": 0}))
        .await
        .problem();
    assert_eq!(problem.kind, "urn:muster:problem:edited-meanwhile");
    assert_eq!(problem.status, 409);
    let again = json!({"priority": 2, "edits": 1});
    assert_eq!(edit(&world, RED, id, &again).await.status, 202);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_change_is_refused_by_its_field() {
    let world = World::new().await;
    let id = world.submit("wrong").await;
    for (body, status, field) in [
        (json!({}), 422, "workers"),
        (json!({"edits": 0}), 422, "workers"),
        (json!({"workers": {"min": 0, "max": 1}}), 422, "workers.min"),
        (json!({"workers": {"min": 3, "max": 2}}), 422, "workers.max"),
        (json!({"workers": {"min": 3}}), 422, "workers"),
        (
            json!({"ps_shards": {"min": 3, "max": 2}}),
            422,
            "ps_shards.max",
        ),
        (json!({"workers": 3}), 422, "workers"),
        (json!({"priority": 101}), 422, "priority"),
        (json!({"retries": 3}), 422, "retries"),
    ] {
        let answer = edit(&world, RED, id, &body).await;
        assert_eq!(answer.status, status, "{body} {}", answer.text());
        let problem = answer.problem();
        let named = problem.errors.first().map(|error| error.field.as_str());
        assert!(
            named.is_some_and(|named| named.starts_with(field)),
            "{body} {problem:?}"
        );
    }
    let job: Value = world.get(RED, &format!("/api/v1/jobs/{id}")).await.json();
    assert_eq!(job["edits"], 0, "nothing of that has changed it");
}

#[tokio::test(flavor = "multi_thread")]
async fn adascale_job_keeps_its_minimum_of_workers() {
    let world = World::new().await;
    let mut adaptive = document("adaptive");
    adaptive["engine"]["batch_rule"] = "adascale".into();
    adaptive["exchange"] = json!({"topology": "all_reduce"});
    adaptive["scale"] = json!({"workers": {"min": 2, "max": 4}});
    let answer = world.post(RED, "/api/v1/jobs", &adaptive).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let id = answer.json::<Value>()["id"].clone();
    let id = id.as_str().expect("an id");
    let problem = edit(&world, RED, id, &json!({"workers": {"min": 1, "max": 4}}))
        .await
        .problem();
    assert_eq!(problem.errors[0].field, "workers.min");
    let problem = edit(&world, RED, id, &json!({"ps_shards": {"min": 1, "max": 1}}))
        .await
        .problem();
    assert!(
        problem.errors[0].field.starts_with("ps_shards"),
        "it has none"
    );
    let wider = json!({"workers": {"min": 2, "max": 8}});
    assert_eq!(edit(&world, RED, id, &wider).await.status, 202);
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_ending_or_foreign_job_is_not_changed() {
    let world = World::new().await;
    let id = world.submit("ends").await;
    let change = json!({"priority": 1});
    let foreign = edit(&world, BLUE, id, &change).await;
    assert_eq!(foreign.status, 404);
    let path = format!("/api/v1/jobs/{id}/cancel");
    world.post(RED, &path, &json!({})).await;
    let cancelled = edit(&world, RED, id, &change).await.problem();
    assert_eq!(cancelled.kind, "urn:muster:problem:wrong-phase");
    assert!(cancelled.detail.contains("being cancelled"));
    world.step(id, 0, Action::Cancel).await;
    let ended = edit(&world, RED, id, &change).await.problem();
    assert_eq!(ended.kind, "urn:muster:problem:wrong-phase");
    let nobody = edit(&world, RED, "01890000-0000-7000-8000-0000000000aa", &change).await;
    assert_eq!(nobody.status, 404);
}
