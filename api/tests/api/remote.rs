//! Rules for opening remote sessions. The stories run whole sessions.

use crate::world::{ADMIN, Answer, BLUE, RED, World, at, id, json_request};
use axum::http::Method;
use muster_model::actor::Actor;
use muster_model::id::JobId;
use muster_model::remote::{MAX_OF_JOB, RemoteAction};
use muster_store::pool;
use muster_store::remote_session::{self, OpenedSession};
use serde_json::{Value, json};

fn exec() -> Value {
    json!({ "action": { "kind": "exec", "command": ["true"] } })
}

async fn open_as(world: &World, token: &str, job: JobId, tenant: Option<&str>) -> Answer {
    open(world, token, job, tenant, &exec()).await
}

async fn open(
    world: &World,
    token: &str,
    job: JobId,
    tenant: Option<&str>,
    body: &Value,
) -> Answer {
    let path = format!("/api/v1/jobs/{job}/sessions");
    let mut request = json_request(Method::POST, token, &path, body);
    let upgrade = "muster-remote".parse().expect("a header");
    request.headers_mut().insert("upgrade", upgrade);
    if let Some(tenant) = tenant {
        let tenant = tenant.parse().expect("a header");
        request.headers_mut().insert("muster-tenant", tenant);
    }
    world.send(request).await
}

async fn allow(world: &World, interactive: bool) {
    let change = json!({ "interactive": interactive });
    let request = json_request(Method::PATCH, ADMIN, "/api/v1/tenants/red", &change);
    let answer = world.send(request).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let shown = answer.json::<Value>()["interactive"].as_bool();
    assert_eq!(shown.unwrap_or(false), interactive);
}

fn refused(answer: &Answer, status: u16, text: &str) {
    assert_eq!(answer.status, status, "{}", answer.text());
    let detail = answer.problem().detail;
    assert!(detail.contains(text), "{detail}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_members_of_an_allowed_tenant_open_sessions() {
    let world = World::new().await;
    let job = world.submit("mine").await;
    world.run(job, 0, 0).await;
    let off = open_as(&world, RED, job, None).await;
    refused(&off, 403, "`muster tenants interactive red allowed`");
    allow(&world, true).await;
    // Everything is right, but this API server has no scheduler.
    let allowed = open_as(&world, RED, job, None).await;
    refused(&allowed, 501, "MUSTER_API_SCHEDULER_URL");
    let of_another_tenant = open_as(&world, BLUE, job, None).await;
    refused(&of_another_tenant, 404, "there is no job");
    let for_another_tenant = open_as(&world, ADMIN, job, Some("blue")).await;
    refused(&for_another_tenant, 404, "there is no job");
    let path = format!("/api/v1/jobs/{job}/sessions");
    let plain = world.post(RED, &path, &exec()).await;
    refused(&plain, 400, "muster-remote");
    allow(&world, false).await;
    refused(&open_as(&world, RED, job, None).await, 403, "are refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn administrator_of_another_tenant_opens_no_session() {
    let world = World::new().await;
    let document = crate::world::document("theirs");
    let answer = world.post(BLUE, "/api/v1/jobs", &document).await;
    let job: Value = answer.json();
    let job: JobId = job["id"].as_str().expect("an id").parse().expect("a UUID");
    world.run(job, 0, 0).await;
    let answer = open_as(&world, ADMIN, job, Some("blue")).await;
    refused(&answer, 403, "only members of tenant blue");
}

#[tokio::test(flavor = "multi_thread")]
async fn session_needs_a_running_task_and_a_valid_action() {
    let world = World::new().await;
    allow(&world, true).await;
    let job = world.submit("mine").await;
    let queued = open_as(&world, RED, job, None).await;
    refused(&queued, 409, "the job is queued");
    world.run(job, 0, 0).await;
    let body = json!({ "rank": 7, "action": { "kind": "port", "port": 1 } });
    refused(&open(&world, RED, job, None, &body).await, 409, "no rank 7");
    let body = json!({ "action": { "kind": "exec", "command": [] } });
    let answer = open(&world, RED, job, None, &body).await;
    assert_eq!(answer.status, 422, "{}", answer.text());
    assert_eq!(answer.problem().errors[0].field, "action.command");
    let body = json!({ "action": { "kind": "port", "port": 1, "host": "10.0.0.1" } });
    let answer = open(&world, RED, job, None, &body).await;
    assert_eq!(answer.status, 422, "{}", answer.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn open_sessions_of_a_job_are_limited() {
    let world = World::new().await;
    let job = world.submit("mine").await;
    let (task, _) = world.run(job, 0, 0).await;
    let api = pool::api(&world.db.api_url, 1).expect("an address");
    let session = |number: u64| OpenedSession {
        id: id(),
        tenant: world.red,
        job,
        task,
        node: world.node,
        rank: 0,
        action: RemoteAction::Port { port: 1 },
        by: Actor {
            user: "ada".to_owned(),
            as_administrator: false,
        },
        key: [7; 32],
        opened_at: at(number),
        expires_at: at(100),
    };
    for number in 0..MAX_OF_JOB {
        let mut tx = pool::begin_for(&api, world.red).await.expect("begun");
        let opened = remote_session::open(&mut tx, &session(number)).await;
        opened.expect("within the limit");
        tx.commit().await.expect("committed");
    }
    let mut tx = pool::begin_for(&api, world.red).await.expect("begun");
    let above = remote_session::open(&mut tx, &session(50)).await;
    let above = above.expect_err("above").to_string();
    assert!(above.contains("remote_sessions_of_job"), "{above}");
    drop(tx);
    // Expired sessions do not count.
    let mut tx = pool::begin_for(&api, world.red).await.expect("begun");
    let later = OpenedSession {
        expires_at: at(300),
        ..session(200)
    };
    remote_session::open(&mut tx, &later).await.expect("room");
}
