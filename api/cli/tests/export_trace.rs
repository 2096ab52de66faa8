//! `muster export-trace` with a test server that returns a made-up history.

use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

/// Answers one request per connection: the jobs in two pages, and the tasks of started jobs.
fn answer(stream: TcpStream) {
    let mut reader = BufReader::new(stream);
    let mut request = String::new();
    reader.read_line(&mut request).expect("a request");
    let mut header = String::new();
    while reader.read_line(&mut header).expect("a header") > 2 {
        header.clear();
    }
    let (first, second) = (id(1), id(2));
    let body = if request.contains(&format!("/jobs/{first}/tasks")) {
        // The newest job comes first: it started on two GPUs and grew to three.
        let grown = [(2, vec![0, 1]), (2, vec![2])];
        let start = [(1, vec![0]), (1, vec![1])];
        json!({ "items": grown.iter().chain(&start).map(task).collect::<Vec<_>>(), "continue": null })
    } else if request.contains("continue=more") {
        let mut without_gpus = queued(&id(3));
        without_gpus["spec"]["resources"] = json!({ "worker": { "gpus": 0 } });
        json!({ "items": [ended(&first), without_gpus], "continue": null })
    } else {
        let mut constrained = queued(&second);
        constrained["spec"]["resources"] = json!({ "worker": { "gpu_kinds": ["A100*", "H100"] } });
        json!({ "items": [constrained], "continue": "more" })
    };
    let body = body.to_string();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n";
    write!(
        reader.get_mut(),
        "{head}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .expect("somebody listens");
}

fn id(number: u32) -> String {
    format!("00000000-0000-7000-8000-{number:012}")
}

fn ended(id: &str) -> Value {
    let mut job = queued(id);
    let done = json!({
        "phase": "succeeded", "state": { "phase": "succeeded" }, "revision": 2,
        "submitted_at": "2026-01-01T00:00:00Z", "started_at": "2026-01-01T00:00:10Z", "finished_at": "2026-01-01T00:01:40.5Z",
    });
    for (name, value) in done.as_object().expect("it is one") {
        job[name] = value.clone();
    }
    job
}

fn queued(id: &str) -> Value {
    json!({
        "id": id, "tenant": "vision", "name": "a-job", "labels": {}, "priority": 0, "phase": "queued", "state": { "phase": "queued" },
        "intent": "run", "revision": 0, "failures": 0, "waiting": null,
        "workers": { "running": 0, "min": 2, "max": 4 }, "ps_shards": { "running": 0, "min": 1, "max": 1 },
        "progress": null, "model_path": null, "failure": null, "resume_step": null, "submitted_by": "ada",
        "submitted_at": "2026-01-01T00:00:30Z", "started_at": null, "finished_at": null,
        "spec": {
            "version": "muster/v1", "name": "a-job",
            "engine": {
                "model": { "kind": "mlp", "hidden": [8] }, "dataset": { "name": "fashion-mnist" },
                "optimizer": { "kind": "sgd", "learning_rate": 0.1 }, "batch": 32,
            },
            "exchange": { "consistency": { "kind": "bsp" } },
            "scale": { "workers": { "min": 2, "max": 4 }, "ps_shards": { "min": 1, "max": 1 } },
            "stop": { "epochs": 1 },
        },
    })
}

fn task((revision, gpus): &(u32, Vec<u32>)) -> Value {
    json!({
        "id": id(revision * 10 + gpus[0]), "job_id": id(1), "name": "worker-0", "role": { "kind": "worker", "rank": 0 },
        "revision": revision, "node_id": id(9), "node": "node-0", "gpus": gpus, "state": { "phase": "running" },
        "address": null, "created_at": "2026-01-01T00:00:05Z", "released_at": null,
    })
}

#[test]
fn exported_history_is_readable_as_a_trace() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = format!("http://{}", listener.local_addr().expect("it is bound"));
    // The thread ends with the test process.
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            answer(stream);
        }
    });
    let home = tempfile::tempdir().expect("a folder");
    let output = Command::new(env!("CARGO_BIN_EXE_muster"))
        .args(["export-trace", "--server", &server, "--token", "t"])
        .env_clear()
        .env("HOME", home.path())
        .output()
        .expect("the program starts");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    let text = String::from_utf8(output.stdout).expect("text");
    let expected = format!(
        "job_id,vc,submit_s,gpus,duration_s,status,kind,started_s,finished_s,gpu_spec\n\
{},vision,0,2,90.5,succeeded,mlp/fashion-mnist,10,100.5,\n\
{},vision,30,2,,queued,mlp/fashion-mnist,,,A100*|H100\n\
{},vision,30,0,,queued,mlp/fashion-mnist,,,\n",
        id(1),
        id(2),
        id(3)
    );
    assert_eq!(text, expected);
    let workload = muster_lab::trace::read("h.csv", "h", &text).expect("the common schema");
    assert_eq!(workload.jobs.len(), 3);
}
