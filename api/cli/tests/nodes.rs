//! `muster nodes` with a test server that returns a GPU node and one whose GPUs are only counted.

mod server;

use serde_json::{Value, json};
use server::{Server, id};

fn node(number: u32, name: &str, memory_bytes: u64, capability: Option<&str>) -> Value {
    let mut gpu = json!({
        "index": 0, "kind": "cuda", "model": "NVIDIA H100", "memory_bytes": memory_bytes,
        "job": null, "task_id": null,
    });
    if let Some(capability) = capability {
        gpu["compute_capability"] = capability.into();
    }
    json!({
        "id": id(number), "name": name, "state": "up", "drained": false, "notice": null,
        "capacity": { "gpus": [], "cpu_milli": 1_000, "memory_bytes": 1_u64 << 30 },
        "gpus": [gpu], "generation": 1, "last_seen_at": "2026-01-01T00:00:00Z",
    })
}

#[test]
fn memory_and_compute_capability_of_gpus_are_shown() {
    let known = node(1, "known", 80 << 30, Some("9.0"));
    let counted = node(2, "counted", 0, None);
    let server = Server::new([(
        "GET /api/v1/nodes",
        json!({ "items": [known, counted], "continue": null }),
    )]);
    let (code, said) = server.muster(&["nodes"]);
    assert_eq!(code, 0, "{said}");
    for line in [
        "known: GPUs: 80.0 GiB each, compute capability 9.0",
        "counted: GPUs: memory unknown, compute capability unknown",
    ] {
        assert!(said.contains(line), "{line} in {said}");
    }
}

#[test]
fn speed_of_deviating_node_is_shown() {
    let mut slow = node(1, "slow", 80 << 30, None);
    slow["speed"] = json!({ "percent": 91, "jobs": 14 });
    let typical = node(2, "typical", 80 << 30, None);
    let server = Server::new([(
        "GET /api/v1/nodes",
        json!({ "items": [slow, typical], "continue": null }),
    )]);
    let (code, said) = server.muster(&["nodes"]);
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains("slow: speed 91 % of its kind (14 jobs measured)"),
        "{said}"
    );
    assert!(!said.contains("typical: speed"), "{said}");
}
