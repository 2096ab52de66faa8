//! Jobs that begin from checkpoints of other jobs: with an equal document they have the bits of the
//! other job, with a different one the allowed differences, and impossible ones fail with a clear
//! reason.

use crate::rig::reports::evaluations;
use crate::rig::s3::TestBucket;
use crate::rig::{Revision, Rig, RigLaunch, spec};
use muster_model::assignment::TaskReport;
use muster_model::id::JobId;
use serde_json::{Value, json};
use uuid::Uuid;

/// Steps per epoch of the rig's data set with its batch of 32.
const EPOCH: u64 = 20;

/// A parent job of two epochs on two shards; the child uses the same folders and is another job.
fn family(more: &Value) -> (Rig, JobId) {
    let mut rig = Rig::new();
    train_parent(&rig, more);
    let parent = rig.job_id;
    rig.job_id = JobId(Uuid::from_u128(0x11));
    (rig, parent)
}

fn train_parent(rig: &Rig, more: &Value) {
    let mut document = json!({ "stop": { "epochs": 2 } });
    for (key, value) in more.as_object().unwrap() {
        document[key] = value.clone();
    }
    rig.start(&RigLaunch::new(1, 1, 2, spec(document)))
        .succeed();
}

/// Starts a job of its own from a checkpoint of the parent.
fn child(rig: &Rig, parent: JobId, step: u64, mut more: Value) -> Revision {
    more["from"] = json!({ "job": parent, "step": step });
    // Revisions of one rig have separate folders.
    rig.start(&RigLaunch::new(9, 1, 2, spec(more)))
}

fn failure(events: &[TaskReport]) -> (String, bool) {
    let failure = events.iter().find_map(|event| match event {
        TaskReport::Failed {
            message, retryable, ..
        } => Some((message.clone(), *retryable)),
        _ => None,
    });
    failure.expect("it has failed")
}

#[test]
fn fork_with_an_equal_document_has_the_bits_of_its_parent() {
    let straight = Rig::new();
    let whole = spec(json!({ "stop": { "epochs": 4 } }));
    straight.start(&RigLaunch::new(1, 1, 2, whole)).succeed();

    let (rig, parent) = family(&json!({}));
    let mut tasks = child(&rig, parent, 2 * EPOCH, json!({ "stop": { "epochs": 4 } }));
    tasks.succeed();
    let events = tasks.chief().events();
    let ready = TaskReport::Ready {
        from_step: 2 * EPOCH,
    };
    assert!(events.contains(&ready), "{events:?}");
    assert_eq!(rig.final_sha256(9), straight.final_sha256(1));
}

#[test]
fn fork_begins_with_the_measures_of_its_parent() {
    let rig = Rig::new();
    let half = spec(json!({ "stop": { "epochs": 2 } }));
    let mut tasks = rig.start(&RigLaunch::new(1, 1, 2, half));
    tasks.succeed();
    let last = evaluations(&tasks.chief().events()).pop().unwrap();
    let parent = rig.job_id;
    let mut rig = rig;
    rig.job_id = JobId(Uuid::from_u128(0x11));
    let hotter = json!({
        "stop": { "epochs": 3 },
        "engine": { "optimizer": { "kind": "adam", "learning_rate": 0.02 } },
    });
    let mut tasks = child(&rig, parent, last.step, hotter);
    tasks.succeed();
    let measured = evaluations(&tasks.chief().events());
    assert_eq!(measured[0], last);
    assert_eq!(measured.last().unwrap().step, 3 * EPOCH);
    // A later start would continue from the child's own checkpoint.
    assert_eq!(rig.checkpoints(), ["step-0000000060-r9"]);
}

#[test]
fn fork_with_another_batch_and_optimizer_keeps_the_epoch() {
    let (rig, parent) = family(&json!({}));
    let other = json!({
        "stop": { "epochs": 3 },
        "engine": {
            "batch": 64,
            "optimizer": { "kind": "sgd", "learning_rate": 0.05, "momentum": 0.9 },
        },
    });
    let mut tasks = child(&rig, parent, 2 * EPOCH, other);
    tasks.succeed();
    let measured = evaluations(&tasks.chief().events());
    let steps: Vec<u64> = measured.iter().map(|one| one.step).collect();
    assert_eq!(steps, [EPOCH, 3 * EPOCH / 2], "epochs of ten steps");
    assert!(
        measured[1].loss.unwrap() < 1.5,
        "it has learned on: {measured:?}"
    );
}

#[test]
fn impossible_fork_fails_with_a_reason_and_no_retry() {
    let (rig, parent) = family(&json!({}));
    let stop = json!({ "epochs": 4 });
    let wider = json!({
        "stop": stop, "engine": { "model": { "kind": "mlp", "hidden": [64] } },
    });
    let stranger = JobId(Uuid::from_u128(0x99));
    for (parent, step, more, words) in [
        (parent, 33, json!({ "stop": stop }), "step 33"),
        (parent, 40, wider, "other parameters"),
        (
            stranger,
            40,
            json!({ "stop": stop }),
            "all nodes need one folder",
        ),
    ] {
        let mut tasks = child(&rig, parent, step, more);
        let chief = tasks.chief();
        assert_eq!(chief.wait().code(), Some(1), "{}", chief.log());
        let (message, retryable) = failure(&chief.events());
        assert!(message.contains(words), "{words}: {message}");
        assert!(!retryable, "{message}");
        let folder = chief.folder.clone();
        drop(tasks);
        std::fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn protected_checkpoint_stays_independent_of_the_policy() {
    let rig = Rig::new();
    let document = json!({
        "stop": { "steps": 60 },
        "checkpoint": { "every_steps": 10, "every_minutes": null, "keep": 1 },
    });
    let mut tasks = rig.start_untold(&RigLaunch::new(1, 1, 1, spec(document)));
    // All steps, because a slow disk delays a checkpoint beyond its due step.
    tasks.peers.spared = (1..=60).collect();
    tasks.tell();
    tasks.succeed();
    let kept = rig.checkpoints();
    assert!(
        kept.len() >= 2,
        "a slow disk skips some, none is removed: {kept:?}"
    );
    let mut pruned = tasks.chief().events();
    pruned.retain(|event| matches!(event, TaskReport::CheckpointPruned { .. }));
    assert_eq!(pruned, []);
}

#[test]
fn fork_begins_from_a_bucket() {
    let bucket = TestBucket::start();
    let mut rig = Rig::new();
    rig.place = Some(bucket.place());
    rig.environment = bucket.environment();
    train_parent(&rig, &json!({}));
    let parent = rig.job_id;
    rig.job_id = JobId(Uuid::from_u128(0x11));
    let mut tasks = child(&rig, parent, 2 * EPOCH, json!({ "stop": { "epochs": 3 } }));
    tasks.succeed();
    let measured = evaluations(&tasks.chief().events());
    let steps: Vec<u64> = measured.iter().map(|one| one.step).collect();
    assert_eq!(steps, [2 * EPOCH, 3 * EPOCH]);
}
