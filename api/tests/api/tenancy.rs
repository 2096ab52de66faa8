//! Rights of the users of two tenants on one cluster.

use crate::world::{ADMIN, Answer, BLUE, RED, World, at, document, json_request};
use axum::body::Body;
use axum::http::{Method, Request};
use muster_model::plan::Action;
use muster_store::{pool, tenant, tenant_scope};
use serde_json::{Value, json};

fn names(answer: &Value) -> Vec<&str> {
    answer["items"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|job| job["name"].as_str().expect("a name"))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn tenant_sees_only_its_own_jobs() {
    let world = World::new().await;
    let job = world.submit("secret").await;
    assert_eq!(
        world
            .post(BLUE, "/api/v1/jobs", &document("other"))
            .await
            .status,
        201
    );
    assert_eq!(
        names(&world.get(RED, "/api/v1/jobs").await.json()),
        ["secret"]
    );
    assert_eq!(
        names(&world.get(BLUE, "/api/v1/jobs").await.json()),
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

/// Sends a request that names a tenant.
async fn acting(
    world: &World,
    token: &str,
    tenant: &str,
    method: Method,
    path: &str,
    body: &Value,
) -> crate::world::Answer {
    let mut request = json_request(method, token, path, body);
    let headers = request.headers_mut();
    headers.insert("muster-tenant", tenant.parse().expect("a header"));
    world.send(request).await
}

#[tokio::test(flavor = "multi_thread")]
async fn administrator_acts_for_another_tenant_by_its_name() {
    let world = World::new().await;
    let made = world
        .post(BLUE, "/api/v1/jobs", &document("secret"))
        .await
        .json::<Value>();
    let path = format!("/api/v1/jobs/{}", made["id"].as_str().expect("an id"));
    let none = json!({});
    assert_eq!(world.get(ADMIN, &path).await.status, 404, "not by itself");
    let found = acting(&world, ADMIN, "blue", Method::GET, &path, &none).await;
    assert_eq!(found.json::<Value>()["name"], "secret");
    let pause = format!("{path}/pause");
    let paused = acting(&world, ADMIN, "blue", Method::POST, &pause, &none).await;
    assert_eq!(paused.status, 202, "{}", paused.text());
    // The tenant's members see the author of each change.
    let resume = format!("{path}/resume");
    assert_eq!(world.post(BLUE, &resume, &none).await.status, 202);
    let change = json!({ "priority": 7 });
    let edited = acting(&world, ADMIN, "blue", Method::PATCH, &path, &change).await;
    assert_eq!(edited.status, 202, "{}", edited.text());
    let history = world.get(BLUE, &format!("{path}/events")).await;
    let history = history.json::<Value>();
    let who = history["items"].as_array().expect("events").iter();
    let who = who
        .map(|one| &one["event"])
        .filter(|event| event["by"].is_object());
    let who: Vec<Value> = who
        .map(|event| json!([event["kind"], event["by"]]))
        .collect();
    let administrator = json!({ "user": "ada@red", "as_administrator": true });
    assert_eq!(
        who,
        [
            json!(["intent_changed", administrator]),
            json!(["intent_changed", { "user": "bea" }]),
            json!(["job_edited", administrator]),
        ]
    );
    // A job that it submits there belongs to that tenant, and names the administrator.
    let made = document("for-blue");
    let made = acting(&world, ADMIN, "blue", Method::POST, "/api/v1/jobs", &made).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let listed: Value = world.get(BLUE, "/api/v1/jobs?name=for-blue").await.json();
    let by = listed["items"][0]["submitted_by"].as_str().expect("a user");
    assert!(by.ends_with("@red"), "{by}");
    // Members may not act for other tenants, and an unknown tenant is reported as such.
    for (token, tenant, status) in [
        (RED, "blue", 403),
        (BLUE, "blue", 200),
        (ADMIN, "no-such", 404),
    ] {
        let answer = acting(&world, token, tenant, Method::GET, "/api/v1/jobs", &none).await;
        assert_eq!(answer.status, status, "{tenant}: {}", answer.text());
        assert_eq!(answer.text().contains("secret"), status == 200);
    }
}

/// The first request of an administrator creates its user there; concurrent first requests create
/// one.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_first_requests_of_impersonation_succeed() {
    let world = World::new().await;
    let documents: Vec<Value> = (0..8).map(|one| document(&format!("job-{one}"))).collect();
    let submitted = documents
        .iter()
        .map(|job| acting(&world, ADMIN, "blue", Method::POST, "/api/v1/jobs", job));
    for answer in futures::future::join_all(submitted).await {
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn gpu_holder_is_shown_to_its_tenant_and_administrators() {
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
        json!({"id": null, "name": null, "tenant": null})
    );
    for path in ["/api/v1/nodes/node-a", "/api/v1/nodes"] {
        let shown = world.get(BLUE, path).await.text();
        assert!(!shown.contains(&id), "{path}: {shown}");
        let gpus: Value = serde_json::from_str(&shown).expect("JSON");
        let node = gpus["items"].get(0).unwrap_or(&gpus);
        assert_eq!(node["gpus"][2]["task_id"], Value::Null, "{path}");
        assert_eq!(node["tasks"], 2, "{path}: how many there are is shown");
    }
    assert_eq!(
        world.get(RED, "/api/v1/nodes").await.json::<Value>()["items"][0]["gpus"][0]["job"],
        Value::Null
    );
}

fn notice(token: &str, notice: &Value) -> Request<Body> {
    json_request(Method::PUT, token, "/api/v1/nodes/node-a/notice", notice)
}

#[tokio::test(flavor = "multi_thread")]
async fn administrator_drains_nodes_sets_quotas_and_adds_tenants() {
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
    let cordoned = json!({"closed": "to_new", "why": "cordoned in Kubernetes", "rack": "r7", "by": "kubernetes"});
    let said = world.send(notice(ADMIN, &cordoned)).await;
    assert_eq!(
        (said.status.as_u16(), &said.json::<Value>()["notice"]),
        (202, &cordoned)
    );
    assert_eq!(world.send(notice(RED, &cordoned)).await.status, 403);
    let beside = json!({"closed": "open", "taken": 2, "by": "kubernetes"});
    let said = world.send(notice(ADMIN, &beside)).await;
    assert_eq!(said.json::<Value>()["notice"], beside);
    for (wrong, field) in [
        (json!({"closed": "shut"}), "closed"),
        (json!({"closed": "open", "taken": -1}), "taken"),
        (json!({"closed": "open", "rack": ""}), "rack"),
        (json!({"closed": "open", "reason": "x"}), "reason"),
        (json!({"closed": "open", "by": ""}), "by"),
        (json!({"closed": "open", "why": "x".repeat(501)}), "why"),
        (json!({"closed": "open", "why": "a\u{0}b"}), "why"),
    ] {
        let refused = world.send(notice(ADMIN, &wrong)).await;
        assert!((400..=422).contains(&refused.status.as_u16()));
        assert_eq!(
            refused.json::<Value>()["errors"][0]["field"],
            field,
            "{wrong}"
        );
    }
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
async fn token_is_revoked_at_once_by_owner_or_administrator() {
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

/// Returns the users and tenants of the listed tokens.
async fn token_owners(world: &World, token: &str, query: &str) -> Vec<(String, String)> {
    let answer = world.get(token, &format!("/api/v1/tokens{query}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let page: Value = answer.json();
    let items = page["items"].as_array().expect("a list").iter();
    items
        .map(|token| pair(text(&token["user"]), text(&token["tenant"])))
        .collect()
}

fn text(value: &Value) -> &str {
    value.as_str().expect("text")
}

fn pair(user: &str, tenant: &str) -> (String, String) {
    (user.to_owned(), tenant.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn administrator_lists_and_revokes_tokens_of_other_tenants() {
    let world = World::new().await;
    let own = [pair("rob", "red"), pair("ada", "red")];
    assert_eq!(token_owners(&world, ADMIN, "").await, own);
    assert_eq!(
        token_owners(&world, ADMIN, "?tenant=blue").await,
        [pair("bea", "blue")]
    );
    let all = token_owners(&world, ADMIN, "?all_tenants=true").await;
    assert_eq!(all[0], pair("bea", "blue"));
    assert_eq!(all[1..], own);
    assert_eq!(
        token_owners(&world, ADMIN, "?all_tenants=true&limit=2").await,
        all[..2]
    );
    for query in ["?tenant=red", "?tenant=blue", "?all_tenants=true"] {
        let answer = world.get(BLUE, &format!("/api/v1/tokens{query}")).await;
        let right = if query == "?tenant=blue" { 200 } else { 403 };
        assert_eq!(answer.status.as_u16(), right, "{query}");
    }
    let unknown = world.get(ADMIN, "/api/v1/tokens?tenant=green").await;
    assert_eq!(unknown.status, 404);
    let listed: Value = world.get(ADMIN, "/api/v1/tokens?tenant=blue").await.json();
    let id = listed["items"][0]["id"].as_str().expect("an id");
    let place = format!("/api/v1/tokens/{id}");
    assert_eq!(world.delete(RED, &place).await.status, 404, "a member's");
    assert_eq!(world.get(BLUE, "/api/v1/me").await.status, 200);
    assert_eq!(world.delete(ADMIN, &place).await.status, 204);
    assert_eq!(world.get(BLUE, "/api/v1/me").await.status, 401);
}

/// Returns the time in an hour by the clock of the API server.
async fn in_an_hour(world: &World) -> String {
    let job: Value = world
        .post(ADMIN, "/api/v1/jobs", &document("clock"))
        .await
        .json();
    let now = job["submitted_at"].as_str().expect("a date");
    let form = &time::format_description::well_known::Rfc3339;
    let now = time::OffsetDateTime::parse(now, form).expect("a date");
    let soon = now + time::Duration::hours(1);
    soon.format(form).expect("a date")
}

async fn new_token(world: &World, by: &str, body: Value) -> Answer {
    world.post(by, "/api/v1/tokens", &body).await
}

async fn new_secret(world: &World, by: &str, body: Value) -> String {
    let made: Value = new_token(world, by, body).await.json();
    text(&made["secret"]).to_owned()
}

/// A stolen token that expires gives no lasting access.
#[tokio::test(flavor = "multi_thread")]
async fn member_token_does_not_outlive_its_creating_token() {
    let world = World::new().await;
    let soon = in_an_hour(&world).await;
    let short = new_secret(&world, RED, json!({"name": "short", "expires_at": soon})).await;
    let form = &time::format_description::well_known::Rfc3339;
    let ends = time::OffsetDateTime::parse(&soon, form).expect("a date");
    let later = |by: time::Duration| (ends + by).format(form).expect("a date");
    for expires_at in [Value::Null, later(time::Duration::seconds(1)).into()] {
        let refused = new_token(
            &world,
            &short,
            json!({"name": "t", "expires_at": expires_at}),
        )
        .await;
        assert_eq!(refused.status, 422, "{expires_at}");
        let error = &refused.problem().errors[0];
        assert_eq!(error.field, "expires_at");
        assert!(error.expected.contains(&soon), "{}", error.expected);
    }
    assert_eq!(
        new_token(&world, &short, json!({"name": "t"})).await.status,
        422
    );
    for expires_at in [soon.clone(), later(-time::Duration::minutes(1))] {
        let body = json!({"name": "t", "expires_at": expires_at});
        assert_eq!(new_token(&world, &short, body).await.status, 201);
    }
    // Administrators may create tokens for other users in any case.
    let admin = json!({"name": "short", "access": "admin", "expires_at": soon});
    let admin = new_secret(&world, ADMIN, admin).await;
    let lasting = json!({"name": "operator", "tenant": "blue", "user": "operator"});
    assert_eq!(new_token(&world, &admin, lasting).await.status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn node_shows_its_number_of_tasks_to_all_tenants() {
    let world = World::new().await;
    let told = async || {
        let mut told = Vec::new();
        for token in [RED, BLUE, ADMIN] {
            let node: Value = world.get(token, "/api/v1/nodes/node-a").await.json();
            let page: Value = world.get(token, "/api/v1/nodes").await.json();
            assert_eq!(page["items"][0]["tasks"], node["tasks"]);
            told.push(node["tasks"].as_u64().expect("a number"));
        }
        told
    };
    assert_eq!(told().await, [0; 3]);
    let job = world.submit("held").await;
    let (chief, shard) = world.run(job, 0, 0).await;
    assert_eq!(
        told().await,
        [2; 3],
        "a worker on a GPU, and a PS shard on none"
    );
    world.gone(&[chief], 1).await;
    assert_eq!(told().await, [1; 3]);
    world.gone(&[shard], 1).await;
    assert_eq!(told().await, [0; 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn last_administrator_token_is_not_revoked() {
    let world = World::new().await;
    let me: Value = world.get(ADMIN, "/api/v1/me").await.json();
    let first = format!("/api/v1/tokens/{}", me["token_id"].as_str().expect("an id"));
    let refused = world.delete(ADMIN, &first).await.problem();
    assert_eq!(refused.status, 409, "{refused}");
    assert_eq!(refused.kind, "urn:muster:problem:last-administrator");
    assert_eq!(world.get(ADMIN, "/api/v1/me").await.status, 200);
    // A token that expires within the day may be gone before it is noticed that it was the last.
    let soon = in_an_hour(&world).await;
    let short = json!({"name": "short", "access": "admin", "expires_at": soon});
    assert_eq!(
        world.post(ADMIN, "/api/v1/tokens", &short).await.status,
        201
    );
    assert_eq!(world.delete(ADMIN, &first).await.status, 409);
    let second = json!({"name": "spare", "tenant": "blue", "user": "bea", "access": "admin"});
    let second: Value = world.post(ADMIN, "/api/v1/tokens", &second).await.json();
    let secret = second["secret"].as_str().expect("a secret");
    assert_eq!(world.delete(secret, &first).await.status, 204);
    let last = format!("/api/v1/tokens/{}", second["id"].as_str().expect("an id"));
    assert_eq!(world.delete(secret, &last).await.status, 409);
    assert_eq!(world.delete(secret, &first).await.status, 204, "again");
}

#[tokio::test(flavor = "multi_thread")]
async fn mutual_revocation_leaves_one_administrator() {
    let world = World::new().await;
    let me: Value = world.get(ADMIN, "/api/v1/me").await.json();
    let first = format!("/api/v1/tokens/{}", me["token_id"].as_str().expect("an id"));
    let second = json!({"name": "spare", "access": "admin"});
    let second: Value = world.post(ADMIN, "/api/v1/tokens", &second).await.json();
    let secret = second["secret"].as_str().expect("a secret");
    let last = format!("/api/v1/tokens/{}", second["id"].as_str().expect("an id"));
    let (one, other) = tokio::join!(world.delete(ADMIN, &last), world.delete(secret, &first));
    let mut answers = [one.status.as_u16(), other.status.as_u16()];
    answers.sort_unstable();
    // The second request is refused, or its caller is no longer an administrator.
    assert_eq!(answers[0], 204);
    assert!([401, 409].contains(&answers[1]), "{answers:?}");
}

/// Returns the kinds of the listed events, and the cursor of the next page.
async fn event_kinds(world: &World, token: &str, query: &str) -> (Vec<String>, Value) {
    let answer = world.get(token, &format!("/api/v1/events{query}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let page: Value = answer.json();
    let items = page["items"].as_array().expect("a list").iter();
    let kinds = items.map(|item| text(&item["event"]["kind"]).to_owned());
    (kinds.collect(), page["continue"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn recent_events_are_of_the_tenant_and_of_nodes() {
    let world = World::new().await;
    let job = world.submit("secret").await;
    world.run(job, 0, 2).await;
    let (all, _) = event_kinds(&world, RED, "").await;
    assert_eq!(
        all.last().map(String::as_str),
        Some("node_state_changed"),
        "the oldest"
    );
    assert!(all.contains(&"task_state_changed".to_owned()), "{all:?}");
    let (quiet, _) = event_kinds(&world, RED, "?routine=false").await;
    let few: Vec<_> = all
        .iter()
        .filter(|kind| **kind != "task_state_changed")
        .cloned()
        .collect();
    assert_eq!(quiet, few);
    let (first, next) = event_kinds(&world, RED, "?limit=2").await;
    let next = next.as_str().expect("more follow").to_owned();
    let (second, _) = event_kinds(&world, RED, &format!("?continue={next}")).await;
    assert_eq!([first, second].concat(), all);
    let (others, _) = event_kinds(&world, BLUE, "").await;
    assert_eq!(others, ["node_state_changed"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn tenant_without_open_work_is_deleted_with_its_tokens() {
    let world = World::new().await;
    let made = world.post(BLUE, "/api/v1/jobs", &document("last")).await;
    let made = made.json::<Value>();
    let path = format!("/api/v1/jobs/{}", made["id"].as_str().expect("an id"));
    let blue = "/api/v1/tenants/blue";
    assert_eq!(world.delete(RED, blue).await.status, 403);
    assert_eq!(
        world.delete(ADMIN, "/api/v1/tenants/red").await.status,
        409,
        "its own"
    );
    let refused = world.delete(ADMIN, blue).await;
    assert_eq!(refused.status, 409);
    assert!(
        refused.text().contains("jobs (1) or studies (0)"),
        "{}",
        refused.text()
    );
    let id = made["id"].as_str().expect("an id");
    let id = id.parse().expect("a UUID");
    let cancelled = world
        .post(BLUE, &format!("{path}/cancel"), &json!({}))
        .await;
    assert_eq!(cancelled.status, 202);
    world.step(id, 0, Action::Cancel).await;
    assert_eq!(world.delete(ADMIN, blue).await.status, 204);
    assert_eq!(world.get(BLUE, &path).await.status, 401);
    let gone = acting(&world, ADMIN, "blue", Method::GET, &path, &json!({})).await;
    assert_eq!(gone.status, 404);
    let listed: Value = world.get(ADMIN, "/api/v1/tenants").await.json();
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(1));
    let again = json!({ "name": "blue" });
    assert_eq!(
        world.post(ADMIN, "/api/v1/tenants", &again).await.status,
        409
    );
    assert_eq!(world.delete(ADMIN, blue).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn member_sees_own_quota_and_administrator_all_use() {
    let world = World::new().await;
    let job = world.submit("holds").await;
    world.run(job, 0, 0).await;
    let me: Value = world.get(RED, "/api/v1/me").await.json();
    let seen = json!([me["gpu_quota"], me["gpus_in_use"], me["jobs_in_use"]]);
    assert_eq!(seen, json!([8, 1, 1]));
    let me: Value = world.get(BLUE, "/api/v1/me").await.json();
    assert_eq!(me["gpus_in_use"], 0, "another tenant's is not its own");
    let listed: Value = world.get(ADMIN, "/api/v1/tenants").await.json();
    let used = listed["items"].as_array().expect("tenants").iter();
    let used: Vec<Value> = used
        .map(|one| json!([one["name"], one["gpus_in_use"]]))
        .collect();
    assert_eq!(used, [json!(["blue", 0]), json!(["red", 1])]);
}

/// If it acts for another tenant, the tenant of its token is not that of the request.
#[tokio::test(flavor = "multi_thread")]
async fn impersonation_does_not_delete_the_tenant_of_the_token() {
    let world = World::new().await;
    let none = json!({});
    let red = "/api/v1/tenants/red";
    // Another administrator would remain.
    let spare = json!({"name": "spare", "tenant": "blue", "user": "bea", "access": "admin"});
    assert_eq!(
        world.post(ADMIN, "/api/v1/tokens", &spare).await.status,
        201
    );
    let refused = acting(&world, ADMIN, "blue", Method::DELETE, red, &none).await;
    assert_eq!(refused.status, 409, "{}", refused.text());
    assert_eq!(world.get(ADMIN, "/api/v1/me").await.status, 200);
    let blue = "/api/v1/tenants/blue";
    let deleted = acting(&world, ADMIN, "blue", Method::DELETE, blue, &none).await;
    assert_eq!(
        deleted.status, 204,
        "another than its own, whomever it acts for"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn tenant_of_the_last_lasting_administrator_is_kept() {
    let world = World::new().await;
    let lasting = json!({"name": "lasts", "tenant": "blue", "user": "bea", "access": "admin"});
    let lasting: Value = world.post(ADMIN, "/api/v1/tokens", &lasting).await.json();
    let lasting = lasting["secret"].as_str().expect("a secret");
    let soon = in_an_hour(&world).await;
    let short = json!({"name": "short", "access": "admin", "expires_at": soon});
    let short: Value = world.post(ADMIN, "/api/v1/tokens", &short).await.json();
    let short = short["secret"].as_str().expect("a secret");
    let me: Value = world.get(ADMIN, "/api/v1/me").await.json();
    let first = format!("/api/v1/tokens/{}", me["token_id"].as_str().expect("an id"));
    assert_eq!(world.delete(lasting, &first).await.status, 204);
    let blue = "/api/v1/tenants/blue";
    let refused = world.delete(short, blue).await.problem();
    assert_eq!(refused.kind, "urn:muster:problem:last-administrator");
    assert_eq!(world.get(lasting, "/api/v1/me").await.status, 200);
    let another = json!({"name": "another", "access": "admin"});
    assert_eq!(
        world.post(short, "/api/v1/tokens", &another).await.status,
        201
    );
    assert_eq!(world.delete(short, blue).await.status, 204);
}

#[tokio::test(flavor = "multi_thread")]
async fn mutual_tenant_deletion_leaves_one_administrator() {
    for _ in 0..4 {
        let world = World::new().await;
        let other = json!({"name": "other", "tenant": "blue", "user": "bea", "access": "admin"});
        let other: Value = world.post(ADMIN, "/api/v1/tokens", &other).await.json();
        let other = other["secret"].as_str().expect("a secret");
        let (one, other) = tokio::join!(
            world.delete(ADMIN, "/api/v1/tenants/blue"),
            world.delete(other, "/api/v1/tenants/red")
        );
        let mut answers = [one.status.as_u16(), other.status.as_u16()];
        answers.sort_unstable();
        assert_eq!(answers[0], 204);
        assert!([401, 409].contains(&answers[1]), "{answers:?}");
    }
}

/// For a short time another replica still accepts its tokens.
#[tokio::test(flavor = "multi_thread")]
async fn cached_token_of_a_deleted_tenant_starts_nothing() {
    let world = World::new().await;
    let me: Value = world.get(BLUE, "/api/v1/me").await.json();
    let blue: uuid::Uuid = me["tenant_id"]
        .as_str()
        .expect("an id")
        .parse()
        .expect("a UUID");
    let elsewhere = pool::api(&world.db.api_url, 1).expect("an address");
    let mut tx = pool::begin(&elsewhere).await.expect("a transaction");
    tenant_scope::admin(&mut tx).await.expect("a scope");
    let deleted = tenant::delete(&mut tx, blue.into(), at(1)).await;
    assert!(deleted.expect("an answer"));
    tx.commit().await.expect("commit");
    let refused = world.post(BLUE, "/api/v1/jobs", &document("late")).await;
    assert_eq!(refused.status, 404, "{}", refused.text());
    assert!(
        refused.text().contains("the tenant was deleted"),
        "{}",
        refused.text()
    );
    let listed: Value = world.get(BLUE, "/api/v1/jobs").await.json();
    assert_eq!(listed["items"], json!([]));
}
