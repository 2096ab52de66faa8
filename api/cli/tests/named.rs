//! Which job a verb means by a name, against a server that answers with jobs made up here and writes down what it was asked.

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
fn a_name_that_several_open_jobs_have_is_refused_and_they_are_listed() {
    let jobs = list(&[dup(3, "queued"), dup(2, "running"), dup(1, "failed")]);
    for verb in ["cancel", "pause", "suspend"] {
        let server = Server::new([("GET /api/v1/jobs?", jobs.clone())]);
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

#[test]
fn the_one_that_has_not_ended_is_meant() {
    let jobs = list(&[dup(3, "failed"), dup(2, "running"), dup(1, "succeeded")]);
    let cancel = format!("POST /api/v1/jobs/{}/cancel", id(2));
    let server = Server::new([
        ("GET /api/v1/jobs?", jobs),
        (cancel.as_str(), dup(2, "running")),
    ]);
    let (code, said) = server.muster(&["cancel", "dup"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(server.asked("POST"), [cancel]);
}
