//! Text of a job without GPUs.

mod server;

use serde_json::{Value, json};
use server::Server;

const ID: &str = "00000000-0000-7000-8000-000000000001";

fn waiting_job() -> Value {
    let why = json!({
        "reason": "waiting_for_cpu_and_memory", "workers": 1, "needed_milli": 2_000, "needed_bytes": 1_u64 << 30,
        "largest_free_milli": 1_500, "largest_free_bytes": 8_u64 << 30, "nodes": 1,
    });
    json!({
        "id": ID, "tenant": "vision", "name": "prepares", "labels": {}, "priority": 0, "phase": "queued", "state": { "phase": "queued" },
        "intent": "run", "revision": 0, "failures": 0,
        "waiting": {
            "reason": "WaitingForCpuAndMemory", "message": "needs 2.0 cores", "smallest_change": null, "position": 1,
            "detail": { "why": why, "smallest_change": null, "position": 1 },
        },
        "workers": { "running": 0, "min": 1, "max": 1 }, "ps_shards": { "running": 0, "min": 0, "max": 0 },
        "progress": null, "model_path": null, "failure": null, "resume_step": null, "submitted_by": "ada",
        "submitted_at": "2026-01-01T00:00:30Z", "started_at": null, "finished_at": null,
        "forecast": {
            "made_at": "2026-01-01T00:00:00Z", "start": null, "gpu_s": 0.0,
            "finish": { "p10": "2026-01-01T00:10:00Z", "p50": "2026-01-01T00:11:00Z", "p90": "2026-01-01T00:12:00Z" },
        },
        "spec": {
            "version": "muster/v1", "name": "prepares", "command": { "argv": ["true"] },
            "resources": { "worker": { "gpus": 0, "cpu_milli": 2_000 } },
        },
    })
}

#[test]
fn explanation_of_a_job_without_gpus_counts_none() {
    let job = waiting_job();
    let node = json!({ "name": "node-a", "gpus": 8, "free_gpus": 0, "why": "no_cpu_or_memory" });
    let explanation = json!({
        "job_id": ID, "name": "prepares", "phase": "queued", "decided": null, "waiting": job["waiting"],
        "in_the_way": { "jobs": [], "nodes": [node], "quota": null },
    });
    let path = format!("GET /api/v1/jobs/{ID}");
    let server = Server::new([
        (&*format!("{path}/explain"), explanation),
        (
            &*format!("{path}/events"),
            json!({ "items": [], "continue": null }),
        ),
        (&*path, job),
    ]);
    let (code, said) = server.muster(&["explain", ID]);
    assert_eq!(code, 0, "{said}");
    let blocked = "node node-a: too little CPU or memory is free, or it is kept for jobs that precede this one";
    assert!(said.contains(blocked), "{said}");
    assert!(said.contains("no GPU-hours"), "{said}");
    assert!(!said.contains("GPUs free"), "{said}");
}
