//! Limits of a tenant for users and administrators, and pages that end before they are too large.

use crate::world::{ADMIN, BLUE, RED, World, document, json_request};
use axum::http::{Method, StatusCode};
use muster_model::assignment::TaskReport;
use muster_model::checkpoint::Written;
use muster_model::plan::Action;
use muster_model::view::JobView;
use serde_json::{Value, json};

async fn limit(world: &World, limits: Value) -> Value {
    let body = json!({ "limits": limits });
    let request = json_request(Method::PATCH, ADMIN, "/api/v1/tenants/red", &body);
    let answer = world.send(request).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    answer.json()
}

#[tokio::test]
async fn job_above_the_limit_is_refused_with_a_remedy() {
    let world = World::new().await;
    limit(&world, json!({ "open_jobs": 1 })).await;
    world.submit("first").await;
    let mut keyed = json_request(Method::POST, RED, "/api/v1/jobs", &document("keyed"));
    keyed
        .headers_mut()
        .insert("idempotency-key", "one".parse().expect("a header"));
    let plain = json_request(Method::POST, RED, "/api/v1/jobs", &document("plain"));
    for request in [plain, keyed] {
        let refused = world.send(request).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN);
        let problem = refused.problem();
        assert_eq!(problem.kind, "urn:muster:problem:limit-exceeded");
        for part in ["open_jobs", "1 of 1", "tenants limits NAME --open-jobs"] {
            assert!(problem.detail.contains(part), "{}", problem.detail);
        }
    }
    let blue = world.post(BLUE, "/api/v1/jobs", &document("blue")).await;
    assert_eq!(blue.status, StatusCode::CREATED);
    let changed = limit(&world, json!({ "open_jobs": null })).await;
    assert_eq!(changed["limits"]["open_jobs"], 50_000);
    world.submit("second").await;
}

#[tokio::test]
async fn interactive_jobs_share_their_own_limit_of_gpus() {
    let world = World::new().await;
    let interactive = |name: &str, gpus: u32| {
        json!({
            "version": "muster/v1", "name": name, "command": { "argv": ["sleep", "60"] },
            "resources": { "worker": { "gpus": gpus } }, "interactive": { "idle_minutes": 5 },
        })
    };
    limit(&world, json!({ "interactive_gpus": 2 })).await;
    let first = world.post(RED, "/api/v1/jobs", &interactive("a", 1)).await;
    assert_eq!(first.status, StatusCode::CREATED, "{}", first.text());
    let refused = world.post(RED, "/api/v1/jobs", &interactive("b", 2)).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    let problem = refused.problem();
    for part in [
        "interactive_gpus",
        "1 of 2",
        "tenants limits NAME --interactive-gpus",
    ] {
        assert!(problem.detail.contains(part), "{}", problem.detail);
    }
    // Other jobs and jobs without GPUs do not count.
    world.submit("other").await;
    let free = world.post(RED, "/api/v1/jobs", &interactive("c", 0)).await;
    assert_eq!(free.status, StatusCode::CREATED);
    // The first has ended.
    let id = first.json::<JobView>().id;
    world.step(id, 0, Action::Cancel).await;
    let again = world.post(RED, "/api/v1/jobs", &interactive("b", 2)).await;
    assert_eq!(again.status, StatusCode::CREATED, "{}", again.text());
    limit(&world, json!({ "interactive_gpus": 0 })).await;
    let none = world.post(RED, "/api/v1/jobs", &interactive("d", 1)).await;
    assert_eq!(none.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn interactive_documents_have_one_worker_and_a_command() {
    let world = World::new().await;
    for (part, field) in [
        (
            json!({ "scale": { "workers": { "min": 1, "max": 2 } } }),
            "scale.workers",
        ),
        (json!({ "verdicts": { "hang_s": 60 } }), "verdicts.hang_s"),
        (
            json!({ "interactive": { "idle_minutes": 0.05 } }),
            "interactive.idle_minutes",
        ),
        (
            json!({ "interactive": { "idle_minutes": 10_081 } }),
            "interactive.idle_minutes",
        ),
    ] {
        let mut wrong = json!({
            "version": "muster/v1", "name": "wrong", "command": { "argv": ["true"] }, "interactive": {},
        });
        for (key, value) in part.as_object().expect("an object") {
            wrong[key] = value.clone();
        }
        let answer = world.post(RED, "/api/v1/jobs", &wrong).await;
        assert_eq!(
            answer.status,
            StatusCode::UNPROCESSABLE_ENTITY,
            "{}",
            answer.text()
        );
        assert!(answer.text().contains(field), "{}", answer.text());
    }
    let mut engine = document("engine");
    engine["interactive"] = json!({});
    let answer = world.post(RED, "/api/v1/jobs", &engine).await;
    assert!(
        answer.text().contains("left out with engine"),
        "{}",
        answer.text()
    );
}

#[tokio::test]
async fn limits_and_their_use_are_shown_to_members_and_administrators() {
    let world = World::new().await;
    limit(&world, json!({ "open_jobs": 7, "user_tokens": 3 })).await;
    world.submit("first").await;
    let me: Value = world.get(RED, "/api/v1/me").await.json();
    assert_eq!(me["limits"]["open_jobs"], 7);
    assert_eq!(me["limits"]["user_tokens"], 3);
    assert_eq!(me["used"]["open_jobs"], 1);
    assert_eq!(me["used"]["tokens"], 2);
    let tenants: Value = world.get(ADMIN, "/api/v1/tenants").await.json();
    let blue = &tenants["items"][0];
    assert_eq!(blue["name"], "blue");
    assert_eq!(
        (&blue["limits"]["open_jobs"], &blue["used"]["tokens"]),
        (&json!(50_000), &json!(1))
    );
    let red = &tenants["items"][1];
    assert_eq!((&red["limits"], &red["used"]), (&me["limits"], &me["used"]));
}

#[tokio::test]
async fn wrong_limits_are_refused_by_name() {
    let world = World::new().await;
    for (limits, expected) in [
        (json!({}), "one or more of open_jobs"),
        (json!({ "open_jobs": 1_u64 << 60 }), "limits.open_jobs"),
        (json!({ "jobs": 1 }), "jobs"),
        (json!({ "tokens": -1 }), "tokens"),
    ] {
        let body = json!({ "limits": limits });
        let request = json_request(Method::PATCH, ADMIN, "/api/v1/tenants/red", &body);
        let refused = world.send(request).await;
        assert!(refused.status.is_client_error(), "{}", refused.text());
        let detail = refused.problem().detail;
        assert!(detail.contains(expected), "{detail}");
    }
    let body = json!({ "limits": { "open_jobs": 1_000_000 } });
    let request = json_request(Method::PATCH, RED, "/api/v1/tenants/red", &body);
    assert_eq!(world.send(request).await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn token_above_the_limit_is_refused_until_one_is_revoked() {
    let world = World::new().await;
    limit(&world, json!({ "user_tokens": 2 })).await;
    let body = json!({ "name": "another" });
    let made = world.post(RED, "/api/v1/tokens", &body).await;
    assert_eq!(made.status, StatusCode::CREATED);
    let refused = world.post(RED, "/api/v1/tokens", &body).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    assert!(refused.problem().detail.contains("user_tokens"));
    let id = made.json::<Value>()["id"].clone();
    let place = format!("/api/v1/tokens/{}", id.as_str().expect("an id"));
    world.delete(RED, &place).await;
    let again = world.post(RED, "/api/v1/tokens", &body).await;
    assert_eq!(again.status, StatusCode::CREATED);
}

#[tokio::test]
async fn page_of_large_jobs_ends_by_its_bytes() {
    const JOBS: usize = 25;
    let world = World::new().await;
    let long = "x".repeat(60_000);
    for number in 0..JOBS {
        let large = json!({
            "version": "muster/v1", "name": format!("large-{number}"),
            "command": { "argv": ["true", long], "env": { "LONG": long }, "files": { "long": long } },
            "scale": { "workers": { "min": 1, "max": 1 } },
        });
        let answer = world.post(RED, "/api/v1/jobs", &large).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
    }
    let (mut names, mut next) = (Vec::new(), String::new());
    loop {
        let answer = world
            .get(RED, &format!("/api/v1/jobs?limit=500{next}"))
            .await;
        assert!(answer.body.len() < 5 << 20, "{} bytes", answer.body.len());
        let page: Value = answer.json();
        for job in page["items"].as_array().expect("a list") {
            names.push(job["name"].as_str().expect("a name").to_owned());
        }
        let Some(token) = page["continue"].as_str() else {
            break;
        };
        next = format!("&continue={token}");
    }
    assert!(!next.is_empty(), "all of it came on one page");
    let expected: Vec<String> = (0..JOBS).rev().map(|n| format!("large-{n}")).collect();
    assert_eq!(names, expected);
}

fn written(step: u64) -> TaskReport {
    TaskReport::CheckpointWritten {
        checkpoint: Written {
            step,
            epoch: 1.0,
            revision: 1,
            path: format!("p/{step}"),
            bytes: 1,
            manifest_sha256: "ab".repeat(32),
            files: Vec::new(),
            loss: None,
            accuracy: None,
        },
    }
}

#[tokio::test]
async fn checkpoints_are_listed_in_pages() {
    let world = World::new().await;
    let job = world.submit("writes").await;
    let (worker, _) = world.run(job, 0, 0).await;
    world
        .tell(worker, 1, 0, (1..=5).map(written).collect())
        .await;
    let place = format!("/api/v1/jobs/{job}/checkpoints");
    let whole: Value = world.get(RED, &place).await.json();
    let whole = whole["items"].as_array().expect("a list").clone();
    assert_eq!(whole.len(), 5);
    let (mut seen, mut next) = (Vec::new(), String::new());
    loop {
        let page: Value = world
            .get(RED, &format!("{place}?limit=2{next}"))
            .await
            .json();
        let items = page["items"].as_array().expect("a list").clone();
        assert!(items.len() <= 2);
        seen.extend(items);
        let Some(token) = page["continue"].as_str() else {
            break;
        };
        next = format!("&continue={token}");
    }
    assert_eq!(seen, whole);
}

/// Returns the user of this name in a page.
fn user<'a>(page: &'a Value, name: &str) -> &'a Value {
    let mut users = page["items"].as_array().expect("a list").iter();
    users.find(|user| user["name"] == name).expect("a user")
}

#[tokio::test]
async fn all_tokens_of_a_user_are_revoked_at_once() {
    let world = World::new().await;
    let body = json!({ "name": "another" });
    let made: Value = world.post(RED, "/api/v1/tokens", &body).await.json();
    let other = made["secret"].as_str().expect("a secret");
    assert_eq!(world.get(other, "/api/v1/me").await.status, 200);
    let users: Value = world.get(ADMIN, "/api/v1/users").await.json();
    assert_eq!(user(&users, "rob")["tokens"], 2);
    assert_eq!(user(&users, "bea")["tenant"], "blue");
    // Members may revoke only their own tokens.
    let refused = world.delete(BLUE, "/api/v1/tokens?user=rob").await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    assert_eq!(
        world.get(BLUE, "/api/v1/users").await.status,
        StatusCode::FORBIDDEN
    );
    let revoked = world.delete(ADMIN, "/api/v1/tokens?user=rob").await;
    assert_eq!(revoked.json::<Value>()["revoked"], 2, "{}", revoked.text());
    assert_eq!(world.get(RED, "/api/v1/me").await.status, 401);
    assert_eq!(world.get(other, "/api/v1/me").await.status, 401);
    let place = "/api/v1/tokens?user=bea&tenant=blue";
    assert_eq!(
        world.delete(ADMIN, place).await.json::<Value>()["revoked"],
        1
    );
    for (path, status) in [
        ("/api/v1/tokens?user=nobody", 404),
        ("/api/v1/tokens", 400),
        ("/api/v1/tokens?user=bea&tenant=green", 404),
    ] {
        assert_eq!(world.delete(ADMIN, path).await.status, status, "{path}");
    }
}

#[tokio::test]
async fn tokens_of_the_last_administrator_are_not_revoked() {
    let world = World::new().await;
    let refused = world.delete(ADMIN, "/api/v1/tokens?user=ada").await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    assert!(refused.problem().kind.ends_with("last-administrator"));
    let body = json!({ "name": "other", "user": "eve", "access": "admin" });
    let made: Value = world.post(ADMIN, "/api/v1/tokens", &body).await.json();
    assert_eq!(
        world.delete(ADMIN, "/api/v1/tokens?user=ada").await.status,
        200
    );
    let eve = made["secret"].as_str().expect("a secret");
    assert_eq!(world.get(eve, "/api/v1/users").await.status, 200);
}
