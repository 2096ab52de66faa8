//! Why a job has its size or waits: for its tenant, from the newest round and the nodes as they are.

use crate::world::{BLUE, RED, World, at, document};
use muster_model::id::JobId;
use muster_model::wait::{Change, Wait, Waiting};
use muster_store::plan::Action;
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
async fn a_running_job_is_weighed_against_the_runner_up() {
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

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_job_is_told_the_jobs_and_nodes_in_its_way() {
    let world = World::new().await;
    let holder = world.submit("holder").await;
    world.run(holder, 0, 2).await;
    let job = world.submit("waits").await;
    let waiting = Waiting {
        why: Wait::WaitingForGpus {
            needed_gpus: 9,
            free_gpus: 3,
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
