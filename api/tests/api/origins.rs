//! Jobs that start from checkpoints of other jobs: which checkpoints they may name, and that these
//! stay.

use crate::world::{BLUE, RED, World, at, document, json_request};
use axum::http::Method;
use muster_model::assignment::TaskReport;
use muster_model::checkpoint::Written;
use muster_model::id::{JobId, TaskId};
use muster_model::spec::JobSpec;
use muster_store::{assignment, origin, plan, pool};
use serde_json::{Value, json};
use std::collections::BTreeSet;

async fn wrote(world: &World, worker: TaskId, seq: u64, job: JobId, step: u64) {
    let checkpoint = Written {
        step,
        epoch: 0.5,
        revision: 1,
        path: format!("{}/{job}/step-{step:010}-r1", world.red),
        bytes: 3,
        manifest_sha256: "00".repeat(32),
        files: vec!["manifest.json".to_owned()],
        loss: None,
        accuracy: None,
    };
    let report = TaskReport::CheckpointWritten { checkpoint };
    world.tell(worker, 1, seq, vec![report]).await;
}

/// Starts a job with checkpoints of steps 40 and 50.
async fn parent(world: &World) -> (JobId, TaskId) {
    let job = world.submit("parent").await;
    let (worker, _) = world.run(job, 0, 0).await;
    wrote(world, worker, 0, job, 40).await;
    wrote(world, worker, 1, job, 50).await;
    (job, worker)
}

fn child(from: Value) -> Value {
    let mut document = document("child");
    document["from"] = from;
    document["engine"]["optimizer"]["learning_rate"] = json!(0.01);
    document
}

async fn spared(world: &World) -> BTreeSet<u64> {
    let mut tx = pool::begin(&world.scheduler).await.expect("a transaction");
    let told = assignment::load(&mut tx, world.node, 1000).await;
    let tasks = told.expect("an assignment").tasks;
    tasks[0].peers.spared.clone()
}

/// Returns the step that a round assumes for a job that has not trained yet.
async fn stands(world: &World, job: JobId) -> Option<u64> {
    let mut tx = pool::begin(&world.scheduler).await.expect("a transaction");
    let loaded = plan::Loader::new(1_000)
        .load(&mut tx, at(5))
        .await
        .expect("loaded");
    let mut jobs = loaded.jobs.into_iter();
    jobs.find(|one| one.job.id == job)?.resume_step
}

#[tokio::test(flavor = "multi_thread")]
async fn fork_with_other_epochs_starts_at_the_same_place() {
    let world = World::new().await;
    let (job, worker) = parent(&world).await;
    let epoch = document("parent");
    let spec: JobSpec = serde_json::from_value(epoch).expect("a document");
    let steps = spec.steps_per_epoch();
    wrote(&world, worker, 2, job, 2 * steps).await;
    let mut halved = child(json!({ "job": job, "step": 2 * steps }));
    let batch = halved["engine"]["batch"].as_u64().expect("a number");
    halved["engine"]["batch"] = json!(2 * batch);
    halved["stop"] = json!({ "epochs": 9 });
    let made = world.post(RED, "/api/v1/jobs", &halved).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let made: Value = made.json();
    let id: JobId = made["id"].as_str().expect("an id").parse().expect("a UUID");
    let spec: JobSpec = serde_json::from_value(halved).expect("a document");
    assert_ne!(spec.steps_per_epoch(), steps);
    assert_eq!(stands(&world, id).await, Some(2 * spec.steps_per_epoch()));
}

async fn generation(world: &World) -> u64 {
    let mut tx = pool::begin(&world.scheduler).await.expect("a transaction");
    origin::tell(&mut tx).await.expect("told");
    tx.commit().await.expect("commit");
    let mut tx = pool::begin(&world.scheduler).await.expect("a transaction");
    let told = assignment::load(&mut tx, world.node, 1000).await;
    told.expect("an assignment").generation
}

#[tokio::test(flavor = "multi_thread")]
async fn fork_uses_newest_or_named_checkpoint_and_protects_it() {
    let world = World::new().await;
    let (job, _) = parent(&world).await;
    let before = generation(&world).await;
    assert_eq!(spared(&world).await, BTreeSet::new());
    let newest = world
        .post(RED, "/api/v1/jobs", &child(json!({ "job": job })))
        .await;
    assert_eq!(newest.status, 201, "{}", newest.text());
    let newest: Value = newest.json();
    assert_eq!(newest["spec"]["from"], json!({ "job": job, "step": 50 }));
    assert_eq!(spared(&world).await, BTreeSet::from([50]));
    assert!(generation(&world).await > before, "its node is told");
    assert_eq!(
        generation(&world).await,
        generation(&world).await,
        "and once is enough"
    );

    let path = format!("/api/v1/jobs/{job}/checkpoints");
    let list: Value = world.get(RED, &path).await.json();
    assert_eq!(list["items"][0]["kept"], json!(["newest", "origin"]));
    assert_eq!(list["items"][1]["kept"], json!(["newest"]));

    let named = child(json!({ "job": job, "step": 40 }));
    let mut keyed = json_request(Method::POST, RED, "/api/v1/jobs", &named);
    let key = "k".parse().expect("a header");
    keyed.headers_mut().insert("idempotency-key", key);
    let named = world.send(keyed).await;
    assert_eq!(named.status, 201, "{}", named.text());
    assert_eq!(spared(&world).await, BTreeSet::from([40, 50]));

    // A job with a checkpoint of its own continues from that; a job that has ended needs none.
    let id: JobId = newest["id"]
        .as_str()
        .expect("an id")
        .parse()
        .expect("a UUID");
    // It has the position of the other job, in its own steps, and its end is predicted from there.
    assert_eq!(stands(&world, id).await, Some(50));
    let (worker, _) = world.run(id, 0, 1).await;
    assert_eq!(spared(&world).await, BTreeSet::from([40, 50]));
    wrote(&world, worker, 0, id, 55).await;
    assert_eq!(spared(&world).await, BTreeSet::from([40]));
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_origin_is_refused_by_its_field() {
    let world = World::new().await;
    let (job, _) = parent(&world).await;
    let other = world.submit("without").await;
    let nowhere = child(json!({ "job": other }));
    let planned = world.post(RED, "/api/v1/plan", &nowhere).await;
    assert_eq!(planned.status, 422, "nor planned: {}", planned.text());
    assert_eq!(planned.problem().errors[0].field, "from.step");
    let mut wider = child(json!({ "job": job }));
    wider["engine"]["model"]["hidden"] = json!([16]);
    let mut over = child(json!({ "job": job }));
    over["stop"] = json!({ "steps": 50 });
    let nobody = "00000000-0000-0000-0000-0000000000aa";
    let program = json!({
        "version": "muster/v1", "name": "program", "command": { "argv": ["true"] }, "from": { "job": job },
    });
    for (token, document, field, words) in [
        (BLUE, child(json!({ "job": job })), "from.job", "yours"),
        (RED, child(json!({ "job": nobody })), "from.job", "yours"),
        (
            RED,
            child(json!({ "job": job, "step": 45 })),
            "from.step",
            "50, 40",
        ),
        (RED, child(json!({ "job": other })), "from.step", "none yet"),
        (RED, wider, "engine.model", "the network"),
        (RED, over, "stop", "more than 50"),
        (RED, program, "from.job", "a job with a command"),
    ] {
        for path in ["/api/v1/jobs", "/api/v1/jobs?dry_run=true"] {
            let refused = world.post(token, path, &document).await;
            assert_eq!(refused.status, 422, "{field}: {}", refused.text());
            let errors = refused.problem().errors;
            assert_eq!(errors[0].field, field);
            assert!(errors[0].expected.contains(words), "{errors:?}");
        }
    }
    assert_eq!(spared(&world).await, BTreeSet::new());
}
