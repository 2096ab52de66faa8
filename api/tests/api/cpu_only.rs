//! Jobs whose workers use no GPUs: their documents, their verbs and why they wait.

use crate::world::{RED, World, document};
use muster_model::id::JobId;
use muster_model::plan::Action;
use muster_model::wait::{Wait, Waiting};
use serde_json::{Value, json};

/// A valid document of an engine job without GPUs.
fn without_gpus(name: &str) -> Value {
    let mut document = document(name);
    document["scale"]["workers"] = json!({ "min": 2, "max": 2 });
    document["resources"] = json!({ "worker": { "gpus": 0, "cpu_milli": 2_000 } });
    document
}

async fn submitted(world: &World, document: &Value) -> JobId {
    let answer = world.post(RED, "/api/v1/jobs", document).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let job: Value = answer.json();
    assert_eq!(job["spec"]["resources"]["worker"]["gpus"], 0);
    serde_json::from_value(job["id"].clone()).expect("an id")
}

#[tokio::test(flavor = "multi_thread")]
async fn engine_job_and_program_without_gpus_are_accepted() {
    let world = World::new().await;
    submitted(&world, &without_gpus("trains")).await;
    let program = json!({
        "version": "muster/v1", "name": "prepares", "command": { "argv": ["true"] },
        "resources": { "worker": { "gpus": 0 } },
    });
    submitted(&world, &program).await;
}

/// Each refused field is named with its value and the right one.
#[tokio::test(flavor = "multi_thread")]
async fn settings_of_gpus_are_refused_without_gpus() {
    let world = World::new().await;
    let mut wrong = without_gpus("wrong");
    wrong["scale"]["workers"]["max"] = json!(3);
    wrong["exclusive"] = json!(true);
    wrong["preemption"] = json!({ "allowed": "suspend" });
    wrong["engine"]["precision"] = json!("bf16");
    let worker = &mut wrong["resources"]["worker"];
    worker["gpu_kinds"] = json!(["H100"]);
    worker["gpu_memory_bytes"] = json!("40Gi");
    for path in ["/api/v1/jobs", "/api/v1/jobs?dry_run=true", "/api/v1/plan"] {
        let refused = world.post(RED, path, &wrong).await;
        assert_eq!(refused.status, 422, "{path}: {}", refused.text());
        let errors = refused.problem().errors;
        let fields: Vec<&str> = errors.iter().map(|error| &*error.field).collect();
        let expected = [
            "scale.workers.max",
            "resources.worker.gpu_kinds",
            "resources.worker.gpu_memory_bytes",
            "exclusive",
            "engine.precision",
            "preemption.allowed",
        ];
        assert_eq!(fields, expected, "{path}");
        assert!(errors[0].to_string().contains("has a fixed size"));
        assert!(
            errors[4]
                .to_string()
                .starts_with("engine.precision is bf16")
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn job_without_gpus_is_paused_but_not_suspended() {
    let world = World::new().await;
    let job = submitted(&world, &without_gpus("trains")).await;
    let verb = |verb: &str| format!("/api/v1/jobs/{job}/{verb}");
    let refused = world.post(RED, &verb("suspend"), &json!({})).await;
    assert_eq!(refused.status, 409, "{}", refused.text());
    assert!(
        refused.text().contains("uses no GPUs"),
        "{}",
        refused.text()
    );
    let paused = world.post(RED, &verb("pause"), &json!({})).await;
    assert_eq!(paused.status, 202, "{}", paused.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn explanation_without_gpus_names_cpu_and_memory() {
    let world = World::new().await;
    let job = submitted(&world, &without_gpus("waits")).await;
    let waiting = Waiting {
        why: Wait::WaitingForCpuAndMemory {
            workers: 2,
            needed_milli: 2_000,
            needed_bytes: 1 << 30,
            largest_free_milli: 1_500,
            largest_free_bytes: 8 << 30,
            nodes: 1,
            exceeds_cluster: false,
        },
        smallest_change: None,
        position: 1,
    };
    world.step(job, 0, Action::Wait { waiting }).await;
    let path = format!("/api/v1/jobs/{job}/explain");
    let said: Value = world.get(RED, &path).await.json();
    assert_eq!(said["waiting"]["reason"], "WaitingForCpuAndMemory");
    let message = said["waiting"]["message"].as_str().expect("a message");
    assert!(message.starts_with("needs 2.0 cores and 1.0 GiB of memory for each of 2 workers"));
    assert!(!message.contains("GPU"), "{message}");
    let nodes = said["in_the_way"]["nodes"].as_array().expect("nodes");
    assert!(!nodes.is_empty());
    let are_short = nodes.iter().all(|node| node["why"] == "no_cpu_or_memory");
    assert!(are_short, "{nodes:?}");
}
