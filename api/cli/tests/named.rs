//! Resolution of job names by verbs, with a test server that records its requests.

mod server;

use serde_json::{Value, json};
use server::{Server, id, job};

fn list(jobs: &[Value]) -> Value {
    json!({ "items": jobs, "continue": null })
}

fn dup(number: u32, phase: &str) -> Value {
    job(number, "dup", phase)
}

#[test]
fn name_of_several_open_jobs_is_refused_with_a_list() {
    let open = list(&[dup(3, "queued"), dup(2, "running")]);
    let all = list(&[dup(3, "queued"), dup(2, "running"), dup(1, "failed")]);
    for verb in ["cancel", "pause", "suspend"] {
        let server = Server::new([
            ("GET /api/v1/jobs?phase=", open.clone()),
            ("GET /api/v1/jobs?name=", all.clone()),
        ]);
        let (code, said) = server.muster(&[verb, "dup"]);
        assert_eq!(code, 2, "{said}");
        assert!(
            said.contains("2 jobs that have not ended have the name \"dup\""),
            "{said}"
        );
        assert!(
            said.contains(&id(2)) && said.contains(&id(3)) && !said.contains(&id(1)),
            "{said}"
        );
        assert_eq!(server.asked("POST"), Vec::<String>::new());
    }
}

fn cancel(number: u32) -> String {
    format!("POST /api/v1/jobs/{}/cancel", id(number))
}

/// The open job may be older than a page of ended jobs of its name.
#[test]
fn name_selects_the_open_job() {
    let ended = list(&[dup(9, "failed"), dup(8, "succeeded")]);
    let server = Server::new([
        ("GET /api/v1/jobs?phase=", list(&[dup(2, "running")])),
        ("GET /api/v1/jobs?name=", ended.clone()),
        (cancel(2).as_str(), dup(2, "running")),
    ]);
    let (code, said) = server.muster(&["cancel", "dup"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(server.asked("POST"), [cancel(2)]);
    // If all jobs have ended, the newest is named to the server, which refuses.
    let server = Server::new([
        ("GET /api/v1/jobs?phase=", list(&[])),
        ("GET /api/v1/jobs?name=", ended),
    ]);
    server.muster(&["cancel", "dup"]);
    assert_eq!(server.asked("POST"), [cancel(9)]);
}
