//! `muster priorities`, and the class of a job, with a test server.

mod server;

use serde_json::{Value, json};
use server::{Server, id, job};

fn urgent() -> Value {
    json!({
        "name": "urgent", "description": "for deadlines", "lowest": 10, "highest": 50, "default": 20,
        "roles": ["member"], "tenants": ["red"],
    })
}

fn server() -> Server {
    Server::new([
        (
            "GET /api/v1/priority-classes",
            json!({ "items": [urgent()], "continue": null }),
        ),
        ("PUT /api/v1/priority-classes/urgent", urgent()),
        ("PUT /api/v1/priority-classes/batch", urgent()),
        ("DELETE /api/v1/priority-classes/urgent", Value::Null),
    ])
}

#[test]
fn classes_are_listed_and_deleted() {
    let server = server();
    let (code, said) = server.muster(&["priorities"]);
    assert_eq!(code, 0, "{said}");
    for word in ["urgent", "10..50", "20", "member", "red", "for deadlines"] {
        assert!(said.contains(word), "{word} in {said}");
    }
    let (code, said) = server.muster(&["priorities", "list", "-o", "json"]);
    assert_eq!(code, 0, "{said}");
    let listed: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(listed, json!([urgent()]));
    let (code, said) = server.muster(&["priorities", "delete", "urgent"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("keep their priorities"), "{said}");
    assert_eq!(server.asked("DELETE").len(), 1);
}

#[test]
fn set_keeps_what_is_left_out() {
    let server = server();
    let set = ["priorities", "set", "urgent", "--highest", "60"];
    let (code, said) = server.muster(&set);
    assert_eq!(code, 0, "{said}");
    let expected = json!({
        "description": "for deadlines", "lowest": 10, "highest": 60, "default": 20,
        "roles": ["member"], "tenants": ["red"],
    });
    assert_eq!(server.body("PUT"), expected);
}

#[test]
fn new_class_needs_a_range_and_none_removes_tenants() {
    let server = server();
    let (code, said) = server.muster(&["priorities", "set", "batch", "--lowest", "-50"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("--lowest and --highest"), "{said}");
    let set = [
        "priorities",
        "set",
        "batch",
        "--lowest",
        "-50",
        "--highest",
        "-1",
        "--role",
        "admin",
        "--tenant",
        "none",
    ];
    let (code, said) = server.muster(&set);
    assert_eq!(code, 0, "{said}");
    let expected = json!({
        "description": "", "lowest": -50, "highest": -1, "roles": ["admin"], "tenants": [],
    });
    assert_eq!(server.body("PUT"), expected);
    let (code, said) = server.muster(&["priorities", "set", "batch", "--role", "owner"]);
    assert_eq!(code, 2, "{said}");
}

#[test]
fn job_shows_its_class_and_gets_another() {
    let mut shown = job(1, "a", "queued");
    shown["priority"] = 20.into();
    shown["priority_class"] = "urgent".into();
    let path = format!("/api/v1/jobs/{}", id(1));
    let (get, patch) = (format!("GET {path}"), format!("PATCH {path}"));
    let tasks = format!("GET {path}/tasks");
    let server = Server::new([
        (tasks.as_str(), json!({ "items": [], "continue": null })),
        (get.as_str(), shown.clone()),
        (patch.as_str(), shown),
    ]);
    let (code, said) = server.muster(&["show", &id(1)]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("20 (urgent)"), "{said}");
    let (code, said) = server.muster(&["edit", &id(1), "--priority-class", "urgent"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("priority 20 (urgent)"), "{said}");
    assert_eq!(server.body("PATCH"), json!({ "priority_class": "urgent" }));
}
