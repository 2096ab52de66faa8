//! `muster tenants` and `muster tokens` with a test server that returns a made-up tenant.

mod server;

use serde_json::{Value, json};
use server::{Server, id, job};

fn vision(quota: Value, gpus: u32, jobs: u32) -> Value {
    json!({ "id": id(1), "name": "vision", "gpu_quota": quota, "weight": 1.0, "gpus_in_use": gpus, "jobs_in_use": jobs })
}

fn listed(items: &[Value]) -> Value {
    json!({ "items": items, "continue": null })
}

/// Returns a job of at most four workers, of which `workers` run.
fn running(number: u32, name: &str, workers: u32) -> Value {
    let mut job = job(number, name, "running");
    job["workers"]["running"] = workers.into();
    job["submitted_at"] = format!("2026-01-01T00:00:0{number}Z").into();
    job
}

#[test]
fn lower_quota_lists_affected_jobs_and_needs_confirmation() {
    let jobs = [
        running(3, "newest", 2),
        running(2, "wide", 4),
        running(1, "oldest", 2),
    ];
    let answers = [
        ("GET /api/v1/tenants", listed(&[vision(Value::Null, 8, 3)])),
        ("GET /api/v1/jobs?", listed(&jobs)),
        ("PATCH /api/v1/tenants/vision", vision(json!(3), 8, 3)),
    ];
    let server = Server::new(answers.clone());
    let (code, said) = server.muster(&["tenants", "quota", "vision", "3"]);
    assert_eq!(code, 2, "{said}");
    let told = "vision holds 8 GPUs in 3 jobs: a quota of 3 stops 2 jobs (newest, wide) at once";
    assert!(said.contains(told) && said.contains("--yes"), "{said}");
    assert_eq!(server.asked("PATCH"), Vec::<String>::new());
    // A suspended job holds no GPU and is not affected, so it is not requested.
    let asked = "GET /api/v1/jobs?phase=starting&phase=running&limit=500";
    assert_eq!(server.asked("GET /api/v1/jobs"), [asked]);
    // Only two GPUs too many: the job `wide` alone releases them.
    let (_, said) = server.muster(&["tenants", "quota", "vision", "6"]);
    assert!(
        said.contains("a quota of 6 makes smaller 1 job (wide) at once"),
        "{said}"
    );
    let (code, said) = server.muster(&["tenants", "quota", "vision", "3", "--yes"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(server.body("PATCH"), json!({ "gpu_quota": 3 }));
    // A higher quota stops no job.
    let server = Server::new(answers);
    let (code, said) = server.muster(&["tenants", "quota", "vision", "8"]);
    assert_eq!(code, 0, "{said}");
}

#[test]
fn members_see_their_quota_and_its_use() {
    let me = json!({
        "tenant_id": id(1), "tenant": "vision", "user_id": id(2), "user": "ada", "token_id": id(3), "access": "member",
        "gpu_quota": 4, "gpus_in_use": 3, "jobs_in_use": 1,
    });
    let tenants = listed(&[vision(json!(4), 3, 1)]);
    let server = Server::new([("GET /api/v1/me", me), ("GET /api/v1/tenants", tenants)]);
    let (_, said) = server.muster(&["whoami"]);
    for line in ["quota:      4 GPUs", "in use:     3 GPUs in 1 job"] {
        assert!(said.contains(line), "{said}");
    }
    let (_, said) = server.muster(&["tenants"]);
    assert!(said.contains("4 GPUs     3 GPUs in 1 job"), "{said}");
}

#[test]
fn token_gets_an_expiry_and_tenant_is_deleted() {
    let made = json!({
        "id": id(3), "name": "ci", "user": "ada", "tenant": "vision", "access": "member", "expires_at": "2030-01-01T00:00:00Z", "secret": "s",
    });
    let deleted = "DELETE /api/v1/tenants/vision";
    let server = Server::new([("POST /api/v1/tokens", made), (deleted, json!({}))]);
    let (code, said) = server.muster(&["tokens", "create", "ci", "--expires", "30d"]);
    assert_eq!(code, 0, "{said}");
    assert!(server.body("POST /api/v1/tokens")["expires_at"].is_string());
    let (code, said) = server.muster(&["tokens", "create", "ci", "--expires", "soon"]);
    assert_eq!(code, 2, "{said}");
    let (code, said) = server.muster(&["tenants", "delete", "vision"]);
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains("within five seconds") && said.contains("are kept"),
        "{said}"
    );
    assert_eq!(server.asked("DELETE"), [deleted]);
}

#[test]
fn pod_permissions_are_changed_per_list() {
    let mut tenant = vision(Value::Null, 0, 0);
    tenant["pods"] = json!({ "images": ["r.io/vision/*"], "secrets": ["wandb"] });
    let server = Server::new([
        ("GET /api/v1/tenants", listed(&[tenant.clone()])),
        ("PATCH /api/v1/tenants/vision", tenant),
    ]);
    let (code, said) = server.muster(&["tenants", "pods", "vision"]);
    assert_eq!(code, 0, "{said}");
    let words: Vec<&str> = said.split_whitespace().collect();
    let said = words.join(" ");
    let expected = "images: r.io/vision/* claims: none secrets: wandb";
    assert!(said.contains(expected), "{said}");
    assert_eq!(
        server.asked("PATCH"),
        Vec::<String>::new(),
        "nothing was to be changed"
    );
    let change = [
        "tenants",
        "pods",
        "vision",
        "--claim",
        "a",
        "--claim",
        "b",
        "--image",
        "none",
        "--service-account",
        "trainers",
    ];
    let (code, said) = server.muster(&change);
    assert_eq!(code, 0, "{said}");
    // The other lists are not sent, because another administrator may change them meanwhile.
    let expected =
        json!({ "pods": { "service_account": "trainers", "claims": ["a", "b"], "images": [] } });
    assert_eq!(server.body("PATCH"), expected);
}
