//! Two tenants on one cluster, and who may do what.

use crate::world::{ADMIN, BLUE, RED, World, document, json_request};
use axum::http::Method;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_sees_its_own_jobs_only() {
    let world = World::new().await;
    let job = world.submit("secret").await;
    assert_eq!(
        world
            .post(BLUE, "/api/v1/jobs", &document("other"))
            .await
            .status,
        201
    );
    let names = |answer: Value| -> Vec<String> {
        answer["items"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|job| job["name"].as_str().expect("a name").to_owned())
            .collect()
    };
    assert_eq!(
        names(world.get(RED, "/api/v1/jobs").await.json()),
        ["secret"]
    );
    assert_eq!(
        names(world.get(BLUE, "/api/v1/jobs").await.json()),
        ["other"]
    );
    for path in [
        "",
        "/tasks",
        "/events",
        "/progress",
        "/checkpoints",
        "/logs",
        "/model",
        "/stream",
        "/logs/stream",
    ] {
        let answer = world.get(BLUE, &format!("/api/v1/jobs/{job}{path}")).await;
        assert_eq!(answer.status, 404, "{path}");
        assert!(!answer.text().contains("secret"), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whose_job_holds_a_gpu_is_told_to_its_tenant_and_administrators() {
    let world = World::new().await;
    let job = world.submit("secret").await;
    world.run(job, 0, 2).await;
    let occupant = async |token: &str| {
        world
            .get(token, "/api/v1/nodes/node-a")
            .await
            .json::<Value>()["gpus"][2]["job"]
            .clone()
    };
    let id = job.to_string();
    assert_eq!(
        occupant(RED).await,
        json!({"id": id, "name": "secret", "tenant": "red"})
    );
    assert_eq!(
        occupant(ADMIN).await,
        json!({"id": id, "name": "secret", "tenant": "red"})
    );
    assert_eq!(
        occupant(BLUE).await,
        json!({"id": id, "name": null, "tenant": null})
    );
    assert_eq!(
        world.get(RED, "/api/v1/nodes").await.json::<Value>()["items"][0]["gpus"][0]["job"],
        Value::Null
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn administrators_drain_nodes_set_quotas_and_bring_tenants_in() {
    let world = World::new().await;
    let drained = world
        .post(ADMIN, "/api/v1/nodes/node-a/drain", &json!({}))
        .await;
    assert_eq!(
        (drained.status.as_u16(), &drained.json::<Value>()["drained"]),
        (202, &json!(true))
    );
    let back = world
        .post(ADMIN, "/api/v1/nodes/node-a/uncordon", &json!({}))
        .await;
    assert_eq!(back.json::<Value>()["drained"], false);
    let quota = json_request(
        Method::PATCH,
        ADMIN,
        "/api/v1/tenants/blue",
        &json!({"gpu_quota": 3}),
    );
    assert_eq!(world.send(quota).await.json::<Value>()["gpu_quota"], 3);
    let heavier = json_request(
        Method::PATCH,
        ADMIN,
        "/api/v1/tenants/blue",
        &json!({"weight": 2.5}),
    );
    let heavier = world.send(heavier).await.json::<Value>();
    assert_eq!(
        (&heavier["gpu_quota"], &heavier["weight"]),
        (&json!(3), &json!(2.5))
    );
    let free = json_request(
        Method::PATCH,
        ADMIN,
        "/api/v1/tenants/blue",
        &json!({"gpu_quota": null}),
    );
    assert_eq!(
        world.send(free).await.json::<Value>()["gpu_quota"],
        Value::Null
    );
    assert_eq!(
        world
            .post(
                ADMIN,
                "/api/v1/tenants",
                &json!({"name": "green", "gpu_quota": 1, "weight": 0.5})
            )
            .await
            .status,
        201
    );
    let token = world
        .post(
            ADMIN,
            "/api/v1/tokens",
            &json!({"name": "first", "tenant": "green", "user": "gus"}),
        )
        .await;
    assert_eq!(token.status, 201, "{}", token.text());
    let secret = token.json::<Value>()["secret"]
        .as_str()
        .expect("a secret")
        .to_owned();
    let me: Value = world.get(&secret, "/api/v1/me").await.json();
    assert_eq!(
        (
            me["tenant"].as_str(),
            me["user"].as_str(),
            me["access"].as_str()
        ),
        (Some("green"), Some("gus"), Some("member"))
    );
    assert_eq!(
        world
            .post(&secret, "/api/v1/jobs", &document("greens"))
            .await
            .status,
        201
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_is_refused_at_once_and_only_its_owner_or_an_administrator_revokes() {
    let world = World::new().await;
    let made: Value = world
        .post(RED, "/api/v1/tokens", &json!({"name": "spare"}))
        .await
        .json();
    let (id, secret) = (
        made["id"].as_str().expect("an id"),
        made["secret"].as_str().expect("a secret"),
    );
    assert_eq!(world.get(secret, "/api/v1/me").await.status, 200);
    let admins: Value = world
        .post(ADMIN, "/api/v1/tokens", &json!({"name": "hers"}))
        .await
        .json();
    let hers = format!("/api/v1/tokens/{}", admins["id"].as_str().expect("an id"));
    assert_eq!(world.delete(RED, &hers).await.status, 403);
    assert_eq!(world.delete(BLUE, &hers).await.status, 404);
    assert_eq!(
        world
            .delete(RED, &format!("/api/v1/tokens/{id}"))
            .await
            .status,
        204
    );
    assert_eq!(world.get(secret, "/api/v1/me").await.status, 401);
    let listed: Value = world.get(RED, "/api/v1/tokens").await.json();
    let listed = listed["items"].as_array().expect("a list");
    assert!(
        listed
            .iter()
            .any(|token| token["id"] == id && !token["revoked_at"].is_null())
    );
    assert!(
        !listed
            .iter()
            .any(|token| token.to_string().contains(secret))
    );
}
