//! Files that are not job documents are refused before a request is sent.

mod server;

use serde_json::json;
use server::Server;
use std::fs;

#[test]
fn empty_file_and_study_document_are_refused_by_kind() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::new([]);
    for (text, says) in [
        ("", "is empty; expected a document"),
        ("# nothing\n\n", "is empty; expected a document"),
        ("version: muster/v1\nkind: study\n", "muster study create "),
    ] {
        let path = folder.path().join("document.yaml");
        fs::write(&path, text).expect("our own folder");
        let (code, said) = server.muster(&["submit", path.to_str().expect("text")]);
        assert_eq!(code, 2, "{said}");
        assert!(said.contains(says), "{said}");
    }
    assert_eq!(server.asked("POST"), Vec::<String>::new());
}

#[test]
fn refusal_names_the_lines_of_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("job.yaml");
    fs::write(&path, "name: x\nscale:\n  workers:\n    min: 0\n").expect("our own folder");
    let refusal = json!({
        "type": "urn:muster:problem:invalid-job", "title": "The job document is not valid", "status": 422, "detail": "",
        "errors": [
            { "field": "scale.workers.min", "value": "0", "expected": "1 to 1024" },
            { "field": "engine", "value": "missing", "expected": "engine or command" },
        ],
    });
    let server = Server::new([
        ("POST /api/v1/jobs", refusal.clone()),
        ("POST /api/v1/plan", refusal.clone()),
        ("POST /api/v1/studies", refusal),
    ]);
    let file = path.to_str().expect("text");
    for command in [
        &["submit"][..],
        &["submit", "--dry-run"],
        &["plan"],
        &["study", "create"],
    ] {
        let (code, said) = server.muster(&[command, &[file]].concat());
        assert_eq!(code, 3, "{said}");
        let located = format!("{file}:4: scale.workers.min is 0; expected 1 to 1024\n    min: 0");
        assert!(said.contains(&located), "{said}");
        assert!(
            said.contains(&format!("{file}: engine is missing")),
            "{said}"
        );
    }
}
