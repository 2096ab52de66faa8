//! Why a job has its size or waits, from the newest round and the present nodes.

use crate::world::{BLUE, RED, World, at, document, sample};
use muster_model::assignment::TaskReport;
use muster_model::id::JobId;
use muster_model::plan::Action;
use muster_model::wait::{Change, Short, Wait, Waiting};
use muster_store::pool;
use muster_store::round::{RoundRecord, insert};
use serde_json::{Value, json};

async fn keep(world: &World, report: Value) {
    let record = RoundRecord {
        number: 7,
        snapshot_zstd: vec![1],
        policy: None,
        plan: r#"{"decisions":[]}"#.to_owned(),
        report: report.to_string(),
    };
    let mut tx = pool::begin(&world.scheduler).await.expect("begun");
    insert(&mut tx, &record, at(7)).await.expect("kept");
    tx.commit().await.expect("committed");
}

async fn explain(world: &World, token: &str, job: JobId) -> Value {
    world
        .get(token, &format!("/api/v1/jobs/{job}/explain"))
        .await
        .json()
}

#[tokio::test(flavor = "multi_thread")]
async fn explanation_of_a_running_job_names_the_runner_up() {
    let world = World::new().await;
    let job = world.submit("trains").await;
    world.run(job, 0, 2).await;
    let other: Value = world
        .post(BLUE, "/api/v1/jobs", &document("hidden"))
        .await
        .json();
    keep(
        &world,
        json!({
            "runner_up": {"job": other["id"], "gain": 41.5},
            "jobs": [{
                "job": job, "why": "one worker more would gain less than another job's", "workers": 1, "ps_shards": 1,
                "next_worker_gain": 12.5, "steps_left": 900.0, "steps_left_between": [800.0, 1100.0], "time_left_s": 90.0,
                "speed": {"points": 2, "mean_relative_error": 0.03, "steps_per_s": 10.0}, "new_field": 1,
                "batch": {"batch": 512, "smallest_batch": 128, "steps_per_s": 18.0, "smallest_steps_per_s": 10.0},
            }],
        }),
    )
    .await;
    let said = explain(&world, RED, job).await;
    assert_eq!(
        said["decided"],
        json!({
            "round": 7, "at": "2027-01-15T08:00:07Z", "why": "one worker more would gain less than another job's",
            "workers": 1, "ps_shards": 1, "next_worker_gain": 12.5,
            "runner_up": {"job_id": other["id"], "name": null, "gain": 41.5},
            "steps_per_s": 10.0, "measured_sizes": 2, "speed_error": 0.03,
            "batch": {
                "message": "batch 512 instead of 128: 1.8 times the progress (predicted)",
                "detail": {"batch": 512, "smallest_batch": 128, "steps_per_s": 18.0, "smallest_steps_per_s": 10.0},
            },
            "steps_left": 900.0, "steps_left_between": [800.0, 1100.0], "time_left_s": 90.0,
        })
    );
    assert_eq!(
        said["in_the_way"],
        json!({"jobs": [], "nodes": [], "quota": null})
    );
    let denied = world
        .get(BLUE, &format!("/api/v1/jobs/{job}/explain"))
        .await;
    assert_eq!(denied.status, 404);
}

/// Only rounds with decisions are stored, and the newest may be old. Remaining work is as of now,
/// consistent with the progress.
#[tokio::test(flavor = "multi_thread")]
async fn explanation_uses_the_newest_report() {
    let world = World::new().await;
    let job = world.submit("trains").await;
    let (chief, _) = world.run(job, 0, 2).await;
    let report = json!({
        "jobs": [{
            "job": job, "why": "starts", "workers": 1, "ps_shards": 1, "step": 100,
            "steps_left": 900.0, "steps_left_between": [800.0, 1100.0], "time_left_s": 300.0,
            "speed": {"points": 0, "mean_relative_error": null, "steps_per_s": 3.0},
        }],
    });
    keep(&world, report).await;
    let steps = [200, 300, 700].map(|step| TaskReport::Progress {
        sample: sample(step),
    });
    world.tell(chief, 1, 0, steps.to_vec()).await;
    let decided = explain(&world, RED, job).await["decided"].clone();
    assert_eq!(decided["steps_left"], 300.0);
    assert_eq!(decided["batch"], Value::Null, "no batch was predicted");
    assert_eq!(decided["steps_left_between"], json!([200.0, 500.0]));
    assert_eq!(
        (&decided["steps_per_s"], &decided["measured_sizes"]),
        (&json!(10.0), &json!(1))
    );
    assert_eq!(decided["time_left_s"], 30.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn explanation_without_a_length_has_no_steps_left() {
    let world = World::new().await;
    let job = world.submit("trains").await;
    world.run(job, 0, 2).await;
    keep(
        &world,
        json!({
            "jobs": [{
                "job": job, "why": "starts", "workers": 1, "ps_shards": 1, "step": 0, "length": "unknown",
                "steps_left": 20.0, "steps_left_between": [20.0, 20.0], "time_left_s": 2.0,
                "speed": {"points": 0, "mean_relative_error": null, "steps_per_s": 10.0},
            }],
        }),
    )
    .await;
    let decided = explain(&world, RED, job).await["decided"].clone();
    for field in ["steps_left", "steps_left_between", "time_left_s"] {
        assert_eq!(decided[field], Value::Null, "{field}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn explanation_of_a_waiting_job_names_jobs_and_nodes() {
    let world = World::new().await;
    let holder = world.submit("holder").await;
    world.run(holder, 0, 2).await;
    let job = world.submit("waits").await;
    let waiting = Waiting {
        why: Wait::WaitingForGpus {
            forbidden: Vec::new(),
            needed_gpus: 9,
            free_gpus: 3,
            kept_gpus: 0,
            occupied_gpus: 0,
            held_by: vec![holder],
        },
        smallest_change: Some(Change::AddGpus { gpus: 6 }),
        position: 1,
    };
    world.step(job, 0, Action::Wait { waiting }).await;
    let said = explain(&world, RED, job).await;
    assert_eq!(said["decided"], Value::Null, "no round is kept");
    assert_eq!(said["waiting"]["smallest_change"], "free or add 6 GPUs");
    assert_eq!(
        said["waiting"]["message"],
        "needs 9 GPUs, 3 are free; blocked by 1 job"
    );
    let path = format!("/api/v1/jobs/{job}/events");
    let history: Value = world.get(RED, &path).await.json();
    let waits = history["items"].as_array().and_then(|items| items.last());
    let waits = waits.expect("an event");
    assert_eq!(
        waits["message"],
        "Waits: needs 9 GPUs, 3 are free; blocked by 1 job"
    );
    assert_eq!(waits["detail"], "to start it: free or add 6 GPUs");
    assert_eq!(waits["waiting"], said["waiting"]);
    assert_eq!(
        said["in_the_way"]["jobs"],
        json!([{"id": holder, "name": "holder", "held_gpus": 1}])
    );
    let node = &said["in_the_way"]["nodes"][0];
    assert_eq!(
        (&node["name"], &node["why"]),
        (&json!("node-a"), &json!("not_enough"))
    );
    assert_eq!(
        node["gpus"]
            .as_u64()
            .zip(node["free_gpus"].as_u64())
            .map(|(all, free)| all - free),
        Some(1)
    );
}

/// The job requests more memory than any node has: each node is too small, and no job is in its
/// way.
#[tokio::test(flavor = "multi_thread")]
async fn explanation_names_memory_above_that_of_any_node() {
    let world = World::new().await;
    let mut large = document("large");
    large["resources"] = json!({"worker": {"memory_bytes": 1_u64 << 42}});
    let job: Value = world.post(RED, "/api/v1/jobs", &large).await.json();
    let job: JobId = serde_json::from_value(job["id"].clone()).expect("an id");
    let waiting = Waiting {
        why: Wait::TopologyPlacementFailed {
            needed_gpus: 1,
            free_gpus: 4,
            short: Some(Short::Memory {
                needed_bytes: 1 << 42,
                largest_node_bytes: 17_179_869_184,
            }),
        },
        smallest_change: None,
        position: 1,
    };
    world.step(job, 0, Action::Wait { waiting }).await;
    let said = explain(&world, RED, job).await;
    assert_eq!(said["waiting"]["reason"], "NoMatchingNodes");
    assert_eq!(
        said["waiting"]["smallest_change"],
        "lower resources.worker.memory_bytes to 17179869184 or less"
    );
    let nodes = said["in_the_way"]["nodes"].as_array().expect("nodes");
    assert!(!nodes.is_empty());
    assert!(
        nodes.iter().all(|node| node["why"] == "too_small"),
        "{nodes:?}"
    );
}
