//! Caps on what the jobs of a tenant demand in `preemption`: administrators set them, submissions
//! are checked, and earlier jobs count as if their documents stated the cap.

use crate::world::{ADMIN, Answer, BLUE, RED, World, at, document, json_request, study_of};
use axum::http::Method;
use muster_model::id::JobId;
use muster_store::{plan, pool};
use serde_json::{Value, json};

fn strict() -> Value {
    json!({
        "version": "muster/v1", "name": "strict", "command": { "argv": ["sh"] },
        "preemption": {
            "allowed": "never", "min_runtime": 900, "grace_s": 300,
            "checkpoint_on_request": { "timeout_s": 600 },
        },
    })
}

async fn cap(world: &World, token: &str, caps: Value) -> Answer {
    let body = json!({ "preemption": caps });
    let request = json_request(Method::PATCH, token, "/api/v1/tenants/red", &body);
    world.send(request).await
}

fn fields(answer: &Answer) -> Vec<String> {
    let problem = answer.problem();
    let fields = problem.errors.iter();
    fields.map(|error| error.field.clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn caps_of_a_tenant_apply_to_its_documents() {
    let world = World::new().await;
    let caps = json!({ "allowed": "suspend", "min_runtime": 600, "grace_s": 60, "timeout_s": 120 });
    let changed = cap(&world, ADMIN, caps.clone()).await;
    assert_eq!(changed.status, 200, "{}", changed.text());
    assert_eq!(changed.json::<Value>()["preemption"], caps);
    let expected = [
        "preemption.allowed",
        "preemption.min_runtime",
        "preemption.grace_s",
        "preemption.checkpoint_on_request.timeout_s",
    ];
    for path in ["/api/v1/jobs", "/api/v1/jobs?dry_run=true", "/api/v1/plan"] {
        let refused = world.post(RED, path, &strict()).await;
        assert_eq!(refused.status, 422, "{path}: {}", refused.text());
        assert_eq!(fields(&refused), expected, "{path}");
        let said = refused.text();
        let expected = "preemption.allowed is never; expected suspend or restart: an administrator has set this cap for tenant red";
        assert!(said.contains(expected), "{said}");
    }
    let study = study();
    for path in ["/api/v1/studies", "/api/v1/studies?dry_run=true"] {
        let refused = world.post(RED, path, &study).await;
        assert_eq!(refused.status, 422, "{path}: {}", refused.text());
        assert_eq!(fields(&refused), ["job.preemption.grace_s"], "{path}");
    }
    // The caps of one tenant do not bind another, nor documents without the part.
    assert_eq!(
        world.post(BLUE, "/api/v1/jobs", &strict()).await.status,
        201
    );
    let plain = document("plain");
    assert_eq!(world.post(RED, "/api/v1/jobs", &plain).await.status, 201);
    // The others stay when one is removed.
    let changed = cap(&world, ADMIN, json!({ "allowed": null })).await;
    assert_eq!(
        changed.json::<Value>()["preemption"],
        json!({ "min_runtime": 600, "grace_s": 60, "timeout_s": 120 })
    );
    let refused = world.post(RED, "/api/v1/jobs", &strict()).await;
    assert_eq!(fields(&refused), expected[1..]);
}

fn study() -> Value {
    let mut job = document("own");
    job["preemption"] = json!({ "grace_s": 300 });
    study_of("of-caps", job)
}

#[tokio::test(flavor = "multi_thread")]
async fn earlier_jobs_come_under_a_later_cap() {
    let world = World::new().await;
    let made: Value = world.post(RED, "/api/v1/jobs", &strict()).await.json();
    let id: JobId = serde_json::from_value(made["id"].clone()).expect("an id");
    let changed = cap(
        &world,
        ADMIN,
        json!({ "allowed": "restart", "min_runtime": 0 }),
    )
    .await;
    assert_eq!(changed.status, 200, "{}", changed.text());
    let mut tx = pool::begin_snapshot(&world.scheduler).await.expect("begun");
    let mut loader = plan::Loader::new(100);
    let loaded = loader.load(&mut tx, at(1)).await;
    let loaded = loaded.expect("a snapshot");
    let mut jobs = loaded.jobs.iter();
    let job = &jobs.find(|one| one.job.id == id).expect("queued").job;
    let mut tenants = loaded.tenants.iter();
    let red = tenants.find(|tenant| tenant.id == job.tenant_id);
    let caps = red.expect("its tenant").preemption;
    assert_eq!(caps.cap(&job.spec).min_runtime, 0);
    // The document is as its owner wrote it.
    let shown: Value = world.get(RED, &format!("/api/v1/jobs/{id}")).await.json();
    assert_eq!(shown["spec"]["preemption"]["allowed"], "never");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_caps_and_changes_of_members_are_refused() {
    let world = World::new().await;
    for (caps, field) in [
        (json!({}), "preemption"),
        (json!({ "grace_s": 0 }), "preemption.grace_s"),
        (json!({ "timeout_s": 3601 }), "preemption.timeout_s"),
    ] {
        let refused = cap(&world, ADMIN, caps).await;
        assert_eq!(refused.status, 422, "{}", refused.text());
        assert_eq!(fields(&refused), [field]);
    }
    assert_eq!(cap(&world, RED, json!({ "grace_s": 5 })).await.status, 403);
}
