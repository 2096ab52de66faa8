//! `muster logs -f` with a test server that returns a made-up job.

mod server;

use serde_json::json;
use server::{Server, id, job};

fn piece(task: u32, text: &str) -> String {
    let piece = json!({ "task_id": id(task), "task": "worker-0", "revision": task, "offset": 0, "next_offset": 6, "text": text });
    format!("event: log\nid: {}@6\ndata: {piece}\n\n", id(task))
}

fn end(kind: &str, reason: &str) -> String {
    format!("event: {kind}\ndata: {}\n\n", json!({ "reason": reason }))
}

#[test]
fn followed_log_continues_after_a_failed_start() {
    let events = [
        piece(1, "first\n"),
        end("task_end", "worker-0 exited with code 1, saying \"first\""),
        piece(2, "again\n"),
        end("end", "worker-0 exited with code 0"),
    ];
    let tasks = format!("GET /api/v1/jobs/{}/tasks", id(7));
    let stream = format!("GET /api/v1/jobs/{}/logs/stream?task=worker-0", id(7));
    let of_id = format!("GET /api/v1/jobs/{}", id(7));
    let server = Server::new([
        (tasks.as_str(), json!({ "items": [], "continue": null })),
        (stream.as_str(), json!(events.concat())),
        (
            "GET /api/v1/jobs?",
            json!({ "items": [job(7, "r", "queued")], "continue": null }),
        ),
        (of_id.as_str(), job(7, "r", "failed")),
    ]);
    let (code, said) = server.muster(&["logs", "-f", "r"]);
    // As `muster wait`.
    assert_eq!(code, 10, "{said}");
    for line in [
        "muster: job r failed\n",
        "first\nagain\n",
        "muster: worker-0 exited with code 1, saying \"first\"; the next worker-0 begins:\n",
    ] {
        assert!(said.contains(line), "{said}");
    }
}
