//! `muster schedule`, `muster template` and arrays with a limit, with a test server.

mod server;

use serde_json::{Value, json};
use server::{Server, job};

fn schedule(change: Value) -> Value {
    let mut schedule = json!({
        "name": "nightly", "owner": "ann", "paused": null, "last_job": null,
        "document": { "cron": "0 3 * * *", "time_zone": "Europe/Berlin", "catch_up": "latest", "overlap": "skip",
                      "job": job(1, "true", "queued")["spec"] },
        "next": [{ "at": "2999-03-29T01:00:00Z", "local": "2999-03-29 03:00 CEST" }],
        "last": { "planned_at": "2026-01-01T02:00:00Z", "at": "2026-01-01T02:00:01Z",
                  "result": { "kind": "refused", "reason": "limit open_jobs" } },
        "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z",
    });
    for (field, value) in change.as_object().expect("an object") {
        schedule[field] = value.clone();
    }
    schedule
}

fn template() -> Value {
    json!({
        "name": "rank", "version": 3, "created_at": "2026-01-01T00:00:00Z",
        "updated_at": "2026-01-01T00:00:00Z", "updated_by": { "user": "ann" },
        "document": {
            "description": "Trains the model",
            "parameters": [{ "name": "lr", "type": "float", "default": 0.1 }, { "name": "tag", "type": "string" }],
            "job": { "version": "muster/v1", "name": "rank-${tag}", "command": { "argv": ["train", "${lr}"] } },
        },
    })
}

fn page(item: Value) -> Value {
    json!({ "items": [item], "continue": null })
}

fn server() -> Server {
    Server::new([
        ("GET /api/v1/schedules/nightly", schedule(json!({}))),
        ("GET /api/v1/schedules", page(schedule(json!({})))),
        ("PUT /api/v1/schedules/nightly", schedule(json!({}))),
        (
            "POST /api/v1/schedules/nightly/pause",
            schedule(json!({ "paused": "by_user", "next": [] })),
        ),
        (
            "POST /api/v1/schedules/nightly/run",
            job(1, "true", "queued"),
        ),
        ("DELETE /api/v1/schedules/nightly", Value::Null),
        ("GET /api/v1/templates/rank", template()),
        ("GET /api/v1/templates", page(template())),
        ("PUT /api/v1/templates/rank", template()),
        ("POST /api/v1/jobs", job(1, "true", "queued")),
        ("GET /api/v1/jobs", job(1, "true", "running")),
    ])
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), text).expect("written");
    file
}

#[test]
fn schedules_show_times_and_the_reason_of_a_refusal() {
    let server = server();
    let (code, said) = server.muster(&["schedule"]);
    assert_eq!(code, 0, "{said}");
    for word in [
        "nightly",
        "0 3 * * *",
        "Europe/Berlin",
        "refused: limit open_jobs",
        "ann",
    ] {
        assert!(said.contains(word), "{word} in {said}");
    }
    let (_, shown) = server.muster(&["schedule", "show", "nightly"]);
    assert!(shown.contains("2999-03-29 03:00 CEST"), "{shown}");
    let (_, paused) = server.muster(&["schedule", "pause", "nightly"]);
    assert!(paused.contains("paused"), "{paused}");
    let (code, run) = server.muster(&["schedule", "run-now", "nightly"]);
    assert!(code == 0 && run.contains("submitted"), "{run}");
    let (code, said) = server.muster(&["schedule", "delete", "nightly"]);
    assert!(code == 0 && said.contains("its jobs stay"), "{said}");
}

#[test]
fn schedule_has_the_rules_and_the_document_of_the_file() {
    let server = server();
    let file = file("version: muster/v1\nname: train\n");
    let file = file.path().to_str().expect("UTF-8");
    let set = ["schedule", "set", "nightly", file, "--cron", "@daily"];
    let rules = ["--time-zone", "Europe/Berlin", "--overlap", "skip"];
    let (code, said) = server.muster(&[&set[..], &rules].concat());
    assert_eq!(code, 0, "{said}");
    let expected = json!({
        "cron": "@daily", "time_zone": "Europe/Berlin", "catch_up": "none", "overlap": "skip",
        "job": { "version": "muster/v1", "name": "train" },
    });
    assert_eq!(server.body("PUT"), expected);
    let wrong = [&set[..], &["--catch-up", "all"]].concat();
    let (code, said) = server.muster(&wrong);
    assert!(
        code == 2 && said.contains("expected none or latest"),
        "{said}"
    );
}

#[test]
fn template_is_filled_before_the_submission() {
    let server = server();
    let (code, said) = server.muster(&["template", "list"]);
    assert!(code == 0 && said.contains("lr, tag"), "{said}");
    let (_, shown) = server.muster(&["template", "show", "rank"]);
    for word in ["float, default 0.1", "string, required", "rank-${tag}"] {
        assert!(shown.contains(word), "{word} in {shown}");
    }
    let submit = ["submit", "--template", "rank", "--set", "tag=01"];
    let (code, said) = server.muster(&submit);
    assert_eq!(code, 0, "{said}");
    let expected = json!({
        "version": "muster/v1", "name": "rank-01", "labels": { "template": "rank" },
        "command": { "argv": ["train", "0.1"] },
    });
    assert_eq!(server.body("POST"), expected);
    let (code, said) = server.muster(&["submit", "--template", "rank", "--set", "lr=fast"]);
    assert_eq!(code, 2, "{said}");
    assert!(
        said.contains("parameters.lr") && said.contains("parameters.tag"),
        "{said}"
    );
}

#[test]
fn array_names_its_limit_in_each_document() {
    let server = server();
    let run = [
        "run",
        "--no-code",
        "--name",
        "fold",
        "--array",
        "5%3",
        "true",
    ];
    let (code, said) = server.muster(&run);
    assert_eq!(code, 0, "{said}");
    let body = server.body("POST");
    assert_eq!(body["array"]["parallel"], 3);
    assert_eq!(body["array"]["name"], body["labels"]["array"]);
}
