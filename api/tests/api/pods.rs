//! Permissions for the pods of a job's tasks: administrators set them per tenant, and submissions
//! are checked.

use crate::world::{ADMIN, BLUE, RED, World, at, document, id, json_request};
use axum::http::Method;
use muster_model::node::{Capacity, Gpu, GpuKind};
use muster_store::{assignment, node, pool};
use serde_json::{Value, json};

fn own() -> Value {
    let mut document = document("own");
    document["pod"] = json!({
        "secret_env": { "KEY": { "secret": "wandb", "key": "k" } },
        "volumes": [{ "kind": "claim", "name": "imagenet", "path": "/data" }],
    });
    document
}

fn study() -> Value {
    let mut job = own();
    let fields = job.as_object_mut().expect("an object");
    for field in ["version", "name", "labels", "stop"] {
        fields.remove(field);
    }
    json!({
        "version": "muster/v1", "kind": "study", "name": "of-pods",
        "search": {
            "objectives": [{ "metric": "test_loss", "goal": "minimize" }],
            "parameters": [{ "name": "batch", "field": "engine.batch", "type": "int", "low": 16, "high": 64 }],
            "budget": { "max": 3 }, "trials": 4,
        },
        "job": job,
    })
}

async fn allow(world: &World, tenant: &str, pods: Value) -> crate::world::Answer {
    let path = format!("/api/v1/tenants/{tenant}");
    let body = json!({ "pods": pods });
    world
        .send(json_request(Method::PATCH, ADMIN, &path, &body))
        .await
}

fn fields(answer: &crate::world::Answer) -> Vec<String> {
    let problem = answer.problem();
    let fields = problem.errors.iter();
    fields.map(|error| error.field.clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_permissions_of_a_tenant_apply_to_its_jobs() {
    let world = World::new().await;
    let expected = ["pod.secret_env.KEY.secret", "pod.volumes[0].name"];
    for path in ["/api/v1/jobs", "/api/v1/jobs?dry_run=true", "/api/v1/plan"] {
        let refused = world.post(RED, path, &own()).await;
        assert_eq!(refused.status, 422, "{path}: {}", refused.text());
        assert_eq!(fields(&refused), expected, "{path}");
        let said = refused.text();
        assert!(
            said.contains("jobs of tenant red have: none so far"),
            "{said}"
        );
    }
    for path in ["/api/v1/studies", "/api/v1/studies?dry_run=true"] {
        let refused = world.post(RED, path, &study()).await;
        assert_eq!(refused.status, 422, "{path}: {}", refused.text());
        let expected = expected.map(|field| format!("job.{field}"));
        assert_eq!(fields(&refused), expected, "{path}");
    }
    let listed: Value = world.get(RED, "/api/v1/jobs").await.json();
    assert_eq!(listed["items"], json!([]), "nothing was kept");

    let pods = json!({ "claims": ["imagenet"], "secrets": ["wandb"] });
    let changed = allow(&world, "red", pods.clone()).await;
    assert_eq!(changed.status, 200, "{}", changed.text());
    assert_eq!(changed.json::<Value>()["pods"], pods);
    assert_eq!(
        world
            .post(RED, "/api/v1/jobs?dry_run=true", &own())
            .await
            .status,
        200
    );
    let made = world.post(RED, "/api/v1/jobs", &own()).await;
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(made.json::<Value>()["spec"]["pod"], own()["pod"]);
    assert_eq!(
        world.post(RED, "/api/v1/studies", &study()).await.status,
        201
    );
    // A permission of one tenant does not apply to another.
    assert_eq!(world.post(BLUE, "/api/v1/jobs", &own()).await.status, 422);
    // A change of other fields leaves it.
    let path = "/api/v1/tenants/red";
    let weight = json!({ "weight": 2.0 });
    let request = json_request(Method::PATCH, ADMIN, path, &weight);
    let changed: Value = world.send(request).await.json();
    assert_eq!(changed["pods"], pods);
    // So does a change of another list, and null selects the account of all tasks.
    let account = json!({ "service_account": "trainers" });
    allow(&world, "red", account).await;
    let fewer = json!({ "secrets": [], "service_account": null });
    let changed = allow(&world, "red", fewer).await;
    assert_eq!(changed.status, 200, "{}", changed.text());
    assert_eq!(
        changed.json::<Value>()["pods"],
        json!({ "claims": ["imagenet"] })
    );
    let refused = world.post(RED, "/api/v1/jobs", &own()).await;
    assert_eq!(fields(&refused), ["pod.secret_env.KEY.secret"]);
}

/// Otherwise only the study's document would be checked, and not its trials.
#[tokio::test(flavor = "multi_thread")]
async fn study_parameter_cannot_set_pod_fields() {
    let world = World::new().await;
    let mut study = study();
    study["job"]
        .as_object_mut()
        .expect("an object")
        .remove("pod");
    study["search"]["parameters"] = json!([
        { "name": "volumes", "field": "pod.volumes", "type": "categorical", "choices": ["a", "b"] },
    ]);
    for field in ["pod.volumes", "pod.image", "pod"] {
        study["search"]["parameters"][0]["field"] = json!(field);
        let refused = world.post(RED, "/api/v1/studies", &study).await;
        assert_eq!(refused.status, 422, "{field}: {}", refused.text());
        let said = refused.text();
        let expected = "another than pod, which the study says for all its trials";
        assert!(said.contains(expected), "{field}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_pod_permission_or_member_change_is_refused() {
    let world = World::new().await;
    let refused = allow(
        &world,
        "red",
        json!({ "secrets": ["a_b"], "images": ["*", "a b"] }),
    )
    .await;
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert_eq!(fields(&refused), ["pods.images[1]", "pods.secrets[0]"]);
    // An empty object had a meaning in older releases and has none now.
    let nothing = allow(&world, "red", json!({})).await;
    assert_eq!(fields(&nothing), ["pods"], "{}", nothing.text());
    let unknown = allow(&world, "red", json!({ "nodes": ["a"] })).await;
    assert!(unknown.status.is_client_error(), "{}", unknown.text());
    let body = json!({ "pods": { "secrets": ["wandb"] } });
    let request = json_request(Method::PATCH, RED, "/api/v1/tenants/red", &body);
    assert_eq!(world.send(request).await.status, 403);
    let made = json!({ "name": "green", "pods": { "service_account": "trainers" } });
    let made = world.post(ADMIN, "/api/v1/tenants", &made).await;
    assert_eq!(
        made.json::<Value>()["pods"],
        json!({ "service_account": "trainers" })
    );
}

/// The next start uses the account that is set by then.
#[tokio::test(flavor = "multi_thread")]
async fn tasks_use_the_service_account_of_their_tenant() {
    let world = World::new().await;
    let job = world.submit("of-red").await;
    world.run(job, 0, 0).await;
    let accounts = async || {
        let mut tx = pool::begin(&world.scheduler).await.expect("a transaction");
        let told = assignment::load(&mut tx, world.node, 1000).await;
        let tasks = told.expect("an assignment").tasks.into_iter();
        tasks
            .map(|task| task.launch.service_account)
            .collect::<Vec<_>>()
    };
    assert_eq!(accounts().await, [None, None]);
    let changed = allow(&world, "red", json!({ "service_account": "trainers" })).await;
    assert_eq!(changed.status, 200, "{}", changed.text());
    let wanted = Some("trainers".to_owned());
    assert_eq!(accounts().await, [wanted.clone(), wanted]);
}

/// Kubernetes does not release the resources of a suspended pod.
#[tokio::test(flavor = "multi_thread")]
async fn job_in_pods_is_not_suspended() {
    let world = World::new().await;
    let job = world.submit("still").await;
    world.run(job, 0, 0).await;
    become_pods(&world).await;
    let refused = world
        .post(RED, &format!("/api/v1/jobs/{job}/suspend"), &json!({}))
        .await;
    assert_eq!(refused.status, 409, "{}", refused.text());
    let said = refused.text();
    assert!(said.contains("tasks are pods"), "{said}");
    let paused = world
        .post(RED, &format!("/api/v1/jobs/{job}/pause"), &json!({}))
        .await;
    assert_eq!(paused.status, 202, "{}", paused.text());
}

/// The node's executor connects again, and its tasks are pods.
async fn become_pods(world: &World) {
    let gpus = (0..4).map(|index| Gpu {
        index,
        kind: GpuKind::CpuSlot,
        model: "cpu".to_owned(),
        memory_bytes: 1 << 30,
        compute_capability: None,
    });
    let capacity = Capacity {
        gpus: gpus.collect(),
        cpu_milli: 8_000,
        memory_bytes: 8 << 30,
        rack: None,
        labels: std::collections::BTreeMap::new(),
        driver_suspend: None,
        pods: Some(true),
        isolation: None,
        images: None,
    };
    let mut tx = pool::begin(&world.scheduler).await.expect("a transaction");
    let again = node::hello(&mut tx, id(), "node-a", &capacity, at(1));
    again.await.expect("a node");
    tx.commit().await.expect("commit");
}
