//! `muster secrets` and the secrets of `muster run`, with a test server.

mod server;

use serde_json::{Value, json};
use server::{Server, job};

fn secret() -> Value {
    json!({
        "name": "HF_TOKEN", "version": 3, "created_at": "2026-01-01T00:00:00Z",
        "updated_at": "2026-02-03T04:05:06Z", "updated_by": { "user": "ann" },
        "open_jobs": 2, "open_studies": 1,
    })
}

fn server() -> Server {
    let stored = json!({ "name": "HF_TOKEN", "version": 4, "updated_at": "2026-01-01T00:00:00Z" });
    Server::new([
        (
            "GET /api/v1/secrets",
            json!({ "items": [secret()], "continue": null }),
        ),
        ("PUT /api/v1/secrets/HF_TOKEN", stored),
        ("DELETE /api/v1/secrets/HF_TOKEN", Value::Null),
        ("POST /api/v1/jobs", job(1, "true", "queued")),
    ])
}

#[test]
fn secrets_are_listed_and_deleted() {
    let server = server();
    let (code, said) = server.muster(&["secrets"]);
    assert_eq!(code, 0, "{said}");
    for word in ["HF_TOKEN", "3", "ann", "2"] {
        assert!(said.contains(word), "{word} in {said}");
    }
    let (code, said) = server.muster(&["secrets", "delete", "HF_TOKEN", "--force"]);
    assert_eq!(code, 0, "{said}");
    assert!(server.asked("DELETE")[0].contains("force=true"));
}

#[test]
fn value_comes_from_standard_input_or_a_file() {
    let place = tempfile::tempdir().expect("a folder");
    let file = place.path().join("id");
    std::fs::write(&file, "key\n").expect("written");
    let file = file.to_str().expect("UTF-8");
    let set = ["secrets", "set", "HF_TOKEN"];
    let from_file = [&set[..], &["--from-file", file]].concat();
    for (arguments, input, sent) in [
        (&set[..], "hunter2\n", "hunter2"),
        (&from_file, "", "key\n"),
    ] {
        let server = server();
        let (code, said) = server.muster_with(arguments, input);
        assert_eq!(code, 0, "{said}");
        assert!(said.contains("version 4") && !said.contains("hunter2"));
        assert_eq!(server.body("PUT"), json!({ "value": sent }));
    }
}

#[test]
fn unfit_values_are_refused_before_they_are_sent() {
    let server = server();
    let set = ["secrets", "set", "HF_TOKEN"];
    let long = "x".repeat((64 << 10) + 1);
    for (input, word) in [("", "empty"), ("\n", "empty"), (long.as_str(), "64 KiB")] {
        let (code, said) = server.muster_with(&set, input);
        assert_eq!(code, 2, "{said}");
        assert!(said.contains(word), "{said}");
    }
    // A value as an argument would be visible to other users of the machine.
    let (code, _) = server.muster(&["secrets", "set", "HF_TOKEN", "hunter2"]);
    assert_eq!(code, 2);
    assert!(server.asked("PUT").is_empty());
}

#[test]
fn run_names_secrets_in_the_document() {
    let server = server();
    let (code, said) = server.muster(&[
        "run",
        "--detach",
        "--no-code",
        "--secret",
        "HF_TOKEN",
        "--secret",
        "wandb-key=WANDB_API_KEY",
        "--secret-file",
        "ssh-key",
        "--secret-file",
        "netrc=.netrc",
        "true",
    ]);
    assert_eq!(code, 0, "{said}");
    let expected = json!([
        { "name": "HF_TOKEN" },
        { "name": "wandb-key", "env": "WANDB_API_KEY" },
        { "name": "ssh-key", "file": "ssh-key" },
        { "name": "netrc", "file": ".netrc" },
    ]);
    assert_eq!(server.body("POST")["command"]["secrets"], expected);
}
