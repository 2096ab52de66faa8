//! Lists that fit the terminal, short ids, comparison of jobs and `muster init`.

mod server;

use muster_model::tenant::{LimitsUse, TenantLimits};
use serde_json::{Value, json};
use server::{Server, id, job};
use std::fs;

fn list(jobs: &[Value]) -> Value {
    json!({ "items": jobs, "continue": null })
}

fn study(name: &str, phase: &str) -> Value {
    json!({
        "id": id(90), "tenant": "vision", "name": name, "labels": {}, "phase": phase, "best": [], "events": 0,
        "trials": { "limit": 27, "created": 9, "running": 3, "waiting": 0, "stopping": 0, "completed": 4,
            "stopped": 1, "failed": 1, "best": 0 },
        "created_by": "ada", "created_at": "2026-01-01T00:00:30Z", "finished_at": null,
        "document": {
            "version": "muster/v1", "kind": "study", "name": name,
            "search": {
                "objectives": [{ "metric": "test_loss", "goal": "minimize" }], "parameters": [],
                "searcher": { "kind": "random" }, "budget": { "max": 9, "unit": "steps" },
                "trials": 27, "concurrency": 3,
            },
            "job": { "command": { "argv": ["true"] } },
        },
    })
}

#[test]
fn list_fits_the_terminal_and_names_short_ids() {
    let jobs = list(&[
        job(12, "a-rather-long-name-of-a-training-job", "running"),
        job(3, "b", "queued"),
    ]);
    let server = Server::new([("GET /api/v1/jobs?", jobs)]);
    let (code, said) = server.muster_in(&["list", "--trials"], "", &[("COLUMNS", "60")]);
    assert_eq!(code, 0, "{said}");
    assert!(
        said.lines().all(|line| line.chars().count() <= 60),
        "{said}"
    );
    assert!(
        said.contains("00000012") && !said.contains(&id(12)),
        "{said}"
    );
    assert!(
        said.contains("a-rather-long-name-of-a-training-job"),
        "{said}"
    );
    // A pipe has no width.
    let (_, said) = server.muster(&["list", "--trials"]);
    assert!(
        said.contains(&id(12)) && said.contains("TRAIN LOSS"),
        "{said}"
    );
    let (_, said) = server.muster_in(&["list", "--trials", "-w"], "", &[("COLUMNS", "60")]);
    assert!(said.contains(&id(12)) && said.contains("WHY"), "{said}");
}

#[test]
fn trials_are_grouped_under_their_open_study() {
    let server = Server::new([
        ("GET /api/v1/jobs?", list(&[job(1, "own", "running")])),
        (
            "GET /api/v1/studies?",
            list(&[study("asha", "running"), study("old", "finished")]),
        ),
    ]);
    let (code, said) = server.muster(&["list"]);
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains("study asha: 6 of 27 trials done, 3 running"),
        "{said}"
    );
    assert!(!said.contains("study old"), "{said}");
    server.muster(&["list", "--trials"]);
    server.muster(&["list", "-o", "json"]);
    let asked = server.asked("GET /api/v1/jobs");
    let grouped: Vec<bool> = asked
        .iter()
        .map(|line| line.contains("trials=false"))
        .collect();
    assert_eq!(grouped, [true, false, false], "{asked:?}");
}

#[test]
fn list_filters_by_user_and_age() {
    let me = json!({ "user": "ada", "tenant": "vision", "tenant_id": id(80), "user_id": id(81), "token_id": id(82), "access": "member", "gpu_quota": null, "gpus_in_use": 0,
        "jobs_in_use": 0,
        "limits": TenantLimits::DEFAULT, "used": LimitsUse::default() });
    let server = Server::new([("GET /api/v1/me", me), ("GET /api/v1/jobs?", list(&[]))]);
    let (code, said) = server.muster(&["list", "--mine", "--trials", "--since", "1d"]);
    assert_eq!(code, 0, "{said}");
    let asked = server.asked("GET /api/v1/jobs");
    assert!(
        asked[0].contains("user=ada") && asked[0].contains("submitted_since=20"),
        "{asked:?}"
    );
}

#[test]
fn end_of_an_id_names_its_job() {
    let one = list(&[job(12, "net", "running")]);
    let cancel = format!("POST /api/v1/jobs/{}/cancel", id(12));
    let server = Server::new([
        ("GET /api/v1/jobs?short_id=", one),
        ("GET /api/v1/jobs?", list(&[])),
        (cancel.as_str(), job(12, "net", "running")),
    ]);
    let (code, said) = server.muster(&["cancel", "00000012"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(server.asked("POST"), [cancel]);
    let (code, said) = server.muster(&["cancel", "no-digits"]);
    assert_eq!(code, 4, "{said}");
    let both = list(&[job(12, "net", "running"), job(112, "other", "running")]);
    let server = Server::new([
        ("GET /api/v1/jobs?short_id=", both),
        ("GET /api/v1/jobs?", list(&[])),
    ]);
    for verb in ["cancel", "show", "delete"] {
        let (code, said) = server.muster(&[verb, "0012"]);
        assert_eq!(code, 2, "{verb}: {said}");
        assert!(
            said.contains("2 jobs have an id that ends with 0012"),
            "{said}"
        );
    }
    assert_eq!(server.asked("POST"), Vec::<String>::new());
}

#[test]
fn labels_select_open_jobs_after_confirmation() {
    let selected = list(&[job(1, "a", "running"), job(2, "b", "queued")]);
    let cancels = [1, 2].map(|number| format!("POST /api/v1/jobs/{}/cancel", id(number)));
    let server = Server::new([
        ("GET /api/v1/jobs?", selected),
        (cancels[0].as_str(), job(1, "a", "running")),
        (cancels[1].as_str(), job(2, "b", "queued")),
    ]);
    let (code, said) = server.muster(&["cancel", "--label", "team=x"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("2 jobs") && said.contains("--yes"), "{said}");
    assert_eq!(server.asked("POST"), Vec::<String>::new());
    let (code, said) = server.muster(&["cancel", "--label", "team=x", "--yes"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(server.asked("POST"), cancels);
    let asked = server.asked("GET /api/v1/jobs");
    assert!(
        asked[0].contains("label=team%3Dx") && asked[0].contains("phase=running"),
        "{asked:?}"
    );
    assert!(!asked[0].contains("phase=failed"), "{asked:?}");
    let (code, said) = server.muster(&["cancel"]);
    assert_eq!(code, 2, "{said}");
}

#[test]
fn diff_shows_what_differs() {
    let mut other = job(2, "wide", "failed");
    other["spec"]["retries"] = json!(7);
    other["failure"] = json!("code 3");
    let metric = |last: f64| {
        list(&[
            json!({ "name": "val/f1", "last_step": 9, "last": last, "min": 0.0, "max": 1.0, "values": 9 }),
        ])
    };
    let (first, second) = (
        format!("/api/v1/jobs/{}", id(1)),
        format!("/api/v1/jobs/{}", id(2)),
    );
    let server = Server::new([
        (format!("GET {first}/metrics").as_str(), metric(0.5)),
        (format!("GET {second}/metrics").as_str(), metric(0.75)),
        (format!("GET {first}").as_str(), job(1, "net", "running")),
        (format!("GET {second}").as_str(), other),
    ]);
    let (code, said) = server.muster(&["diff", &id(1), &id(2)]);
    assert_eq!(code, 0, "{said}");
    let has = |words: &[&str]| {
        said.lines()
            .any(|line| line.split_whitespace().collect::<Vec<_>>() == words)
    };
    assert!(has(&["name", "net", "wide"]), "{said}");
    assert!(has(&["retries", "3", "7"]), "{said}");
    assert!(has(&["phase", "running", "failed"]), "{said}");
    assert!(has(&["val/f1", "0.5", "0.75"]), "{said}");
    assert!(!said.contains("version"), "{said}");
    let (_, all) = server.muster(&["diff", "--all", &id(1), &id(2)]);
    assert!(all.contains("version"), "{all}");
}

#[test]
fn init_writes_a_document_of_the_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::new([]);
    let path = folder.path().to_str().expect("text");
    let (code, said) = server.muster(&["init", "--dir", path]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("has no Python script"), "{said}");
    fs::write(folder.path().join("train.py"), "import torch.distributed\n")
        .expect("our own folder");
    fs::write(folder.path().join("requirements.txt"), "torch\n").expect("our own folder");
    let (code, said) = server.muster(&["init", "--dir", path]);
    assert_eq!(code, 0, "{said}");
    let file = folder.path().join("muster.yaml");
    let text = fs::read_to_string(&file).expect("it was written");
    for part in [
        "argv: [\"python3\", \"train.py\"]",
        "requirements: requirements.txt",
        "max: 4",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let (code, said) = server.muster(&["init", "--dir", path]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("--force"), "{said}");
    let (code, said) =
        server.muster(&["init", "--dir", path, "--file", "-", "python3", "other.py"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("other.py"), "{said}");
    assert_eq!(
        fs::read_to_string(&file).expect("it is there"),
        text,
        "unchanged"
    );
}

#[test]
fn top_prints_once_without_a_terminal() {
    let server = Server::new([
        ("GET /api/v1/nodes", list(&[])),
        (
            "GET /api/v1/jobs?phase=queued",
            list(&[job(2, "waits", "queued")]),
        ),
        ("GET /api/v1/jobs?", list(&[job(1, "trains", "running")])),
    ]);
    let (code, said) = server.muster(&["top"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("1 running, 1 queued"), "{said}");
    let (trains, waits) = (said.find("trains"), said.find("waits"));
    assert!(trains.is_some() && trains < waits, "{said}");
}
