//! Checkpoints in an object store: real task processes with a real S3-compatible server.
//!
//! Requires a python3 with moto: `MUSTER_S3_PYTHON`, or the one in PATH (`scripts/ensure-s3`
//! installs it).

use crate::rig::reports::written;
use crate::rig::s3::TestBucket;
use crate::rig::{PATIENCE, Rig, RigLaunch, spec};
use muster_model::assignment::TaskReport;
use serde_json::{Value, json};
use std::thread;
use std::time::Duration;

fn document() -> Value {
    json!({
        "stop": { "steps": 60 },
        "checkpoint": { "every_steps": 10, "every_minutes": null, "keep": 2 },
    })
}

fn in_bucket(bucket: &TestBucket) -> Rig {
    let mut rig = Rig::new();
    rig.place = Some(bucket.place());
    rig.environment = bucket.environment();
    rig
}

fn home(rig: &Rig) -> String {
    format!("{}/{}", rig.tenant_id, rig.job_id)
}

/// Names of checkpoints and models with at least one object, and other objects.
fn names(bucket: &TestBucket, rig: &Rig) -> Vec<String> {
    let home = format!("{}/", home(rig));
    let objects = bucket.objects();
    let mut names: Vec<String> = objects
        .iter()
        .map(|object| object.strip_prefix(&home).expect("nothing lies elsewhere"))
        .map(|object| object.split('/').next().unwrap().to_owned())
        .collect();
    names.dedup();
    names
}

fn final_sha256(bucket: &TestBucket, rig: &Rig, revision: u64) -> String {
    let manifest = bucket.read(&format!("{}/final-r{revision}/manifest.json", home(rig)));
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let sum = &manifest["files"]["model.safetensors"]["sha256"];
    sum.as_str().unwrap().to_owned()
}

#[test]
fn job_resumed_from_a_bucket_has_the_same_bits() {
    let bucket = TestBucket::start();
    let straight = Rig::new();
    let whole = RigLaunch::new(1, 2, 2, spec(document()));
    straight.start(&whole).succeed();

    let first = in_bucket(&bucket);
    let mut half = document();
    half["stop"] = json!({ "steps": 30 });
    first.start(&RigLaunch::new(1, 2, 2, spec(half))).succeed();
    // A slow store leads to fewer checkpoints: except for the last one, the two that remain depend
    // on the machine.
    let kept = names(&bucket, &first);
    assert_eq!(kept[..2], ["final-r1", "index.json"], "{kept:?}");
    assert_eq!(kept.last().unwrap(), "step-0000000030-r1", "{kept:?}");
    assert!(kept.len() <= 4, "two stay, and nothing else: {kept:?}");
    assert!(
        !first.checkpoint_root().exists(),
        "nothing lies on the node"
    );

    let second = in_bucket(&bucket);
    let rest = RigLaunch::new(2, 1, 1, spec(document())).resuming(30);
    let mut tasks = second.start(&rest);
    tasks.succeed();
    let events = tasks.chief().events();
    let ready = TaskReport::Ready { from_step: 30 };
    assert!(events.contains(&ready), "{events:?}");
    let finished = events.iter().find_map(|event| match event {
        TaskReport::Finished { model_path, .. } => Some(model_path.clone()),
        _ => None,
    });
    let expected = format!("{}/final-r2/model.safetensors", home(&second));
    assert_eq!(finished, Some(expected));
    // Sums of one worker and of two differ in their last bits, so the comparison uses the same
    // layout.
    let third = in_bucket(&bucket);
    third
        .start(&RigLaunch::new(3, 2, 2, spec(document())).resuming(60))
        .succeed();
    assert_eq!(
        final_sha256(&bucket, &third, 3),
        final_sha256(&bucket, &second, 2)
    );

    let other = TestBucket::start();
    let again = in_bucket(&other);
    let mut half = document();
    half["stop"] = json!({ "steps": 30 });
    again.start(&RigLaunch::new(1, 2, 2, spec(half))).succeed();
    again
        .start(&RigLaunch::new(2, 2, 2, spec(document())).resuming(30))
        .succeed();
    assert_eq!(final_sha256(&other, &again, 2), straight.final_sha256(1));
}

#[test]
fn killed_upload_is_not_listed_and_leaves_no_object() {
    let bucket = TestBucket::start();
    let rig = in_bucket(&bucket);
    let large = json!({
        "engine": { "model": { "kind": "mlp", "hidden": [2048, 2048] } },
        "stop": { "steps": 3 },
        "checkpoint": { "every_steps": 1, "every_minutes": null, "keep": 1 },
    });
    for revision in 1..=3 {
        let mut tasks = rig.start(&RigLaunch::new(revision, 1, 1, spec(large.clone())));
        // An upload without parts costs nothing; it is recorded before parts are sent.
        let own = format!("-r{revision}.json");
        wait("an upload in parts", || {
            bucket.objects().iter().any(|key| key.ends_with(&own))
        });
        tasks.kill_all();
        tasks.wait();
        let index = bucket.read(&format!("{}/index.json", home(&rig)));
        let index: Value = serde_json::from_slice(&index).unwrap();
        assert_eq!(index["revision"], json!(revision));
        assert_eq!(index["checkpoints"], json!([]), "a killed upload is none");
    }
    assert!(
        !bucket.uploads().is_empty(),
        "the killed one has left its parts"
    );
    let mut tasks = rig.start(&RigLaunch::new(4, 1, 1, spec(large)));
    tasks.succeed();
    assert!(bucket.uploads().is_empty(), "{:?}", bucket.uploads());
    let kept = ["final-r4", "index.json", "step-0000000003-r4"];
    assert_eq!(names(&bucket, &rig), kept);
    let ready = TaskReport::Ready { from_step: 0 };
    assert!(tasks.chief().events().contains(&ready));
}

#[test]
fn older_of_two_writers_is_fenced() {
    let bucket = TestBucket::start();
    let endless = json!({
        "stop": { "steps": 1_000_000 },
        "checkpoint": { "every_steps": 1, "every_minutes": null, "keep": 2 },
    });
    let old = in_bucket(&bucket);
    let mut stale = old.start(&RigLaunch::new(1, 1, 1, spec(endless.clone())));
    let saved = stale.chief().wait_for("a checkpoint", written);
    let new = in_bucket(&bucket);
    let mut fresh = new.start(&RigLaunch::new(2, 1, 1, spec(endless)).resuming(saved));
    let from = fresh.chief().wait_for("ready", |event| match event {
        TaskReport::Ready { from_step } => Some(*from_step),
        _ => None,
    });
    stale.wait();
    let failure = stale
        .chief()
        .events()
        .into_iter()
        .find_map(|event| match event {
            TaskReport::Failed { message, .. } => Some(message),
            _ => None,
        });
    let failure = failure.expect("it says why it ended");
    assert!(
        failure.contains("revision 2 of the job has started"),
        "{failure}"
    );
    // The new writer continues from about the newest checkpoint that the old one wrote; none was
    // published afterwards.
    let reported = stale.chief().events().iter().filter_map(written).max();
    assert!(
        reported <= Some(from),
        "{reported:?} was written after {from}"
    );
    fresh.chief().wait_for("a checkpoint", written);
    fresh.kill_all();
    fresh.wait();
    let index = bucket.read(&format!("{}/index.json", home(&new)));
    let index: Value = serde_json::from_slice(&index).unwrap();
    assert_eq!(index["revision"], json!(2));
}

#[test]
fn damaged_checkpoint_is_set_aside_and_the_older_one_used() {
    let bucket = TestBucket::start();
    let rig = in_bucket(&bucket);
    rig.start(&RigLaunch::new(1, 1, 1, spec(document())))
        .succeed();
    let before: u64 = names(&bucket, &rig)
        .iter()
        .filter_map(|name| {
            name.strip_prefix("step-")?
                .strip_suffix("-r1")?
                .parse()
                .ok()
        })
        .filter(|&step| step < 60)
        .max()
        .expect("there is one before");
    let part = format!("{}/step-0000000060-r1/model.safetensors", home(&rig));
    let mut bytes = bucket.read(&part);
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    bucket.write(&part, &bytes);
    let mut tasks = rig.start(&RigLaunch::new(2, 1, 1, spec(document())).resuming(60));
    tasks.succeed();
    let events = tasks.chief().events();
    let ready = TaskReport::Ready { from_step: before };
    assert!(events.contains(&ready), "{events:?}");
    assert!(events.contains(&TaskReport::CheckpointPruned { step: 60 }));
    let index = bucket.read(&format!("{}/index.json", home(&rig)));
    let index: Value = serde_json::from_slice(&index).unwrap();
    assert_eq!(index["damaged"], json!(["step-0000000060-r1"]));
    assert_eq!(
        final_sha256(&bucket, &rig, 2),
        final_sha256(&bucket, &rig, 1)
    );
}

/// It is then unknown whether there is a checkpoint to continue from.
#[test]
fn training_does_not_begin_without_its_store() {
    let bucket = TestBucket::start();
    let mut rig = in_bucket(&bucket);
    rig.place = Some("s3://no-such-bucket/x".to_owned());
    let mut tasks = rig.start(&RigLaunch::new(
        1,
        1,
        0,
        spec(json!({ "exchange": { "topology": "all_reduce" } })),
    ));
    tasks.wait();
    let failure = tasks
        .chief()
        .events()
        .into_iter()
        .find_map(|event| match event {
            TaskReport::Failed { message, .. } => Some(message),
            _ => None,
        });
    let failure = failure.expect("it says why it ended");
    assert!(failure.contains("s3://no-such-bucket/x"), "{failure}");
    assert!(
        !failure.contains("again and again"),
        "nobody else is to blame: {failure}"
    );
}

fn wait(what: &str, done: impl Fn() -> bool) {
    let pause = Duration::from_millis(5);
    for _ in 0..PATIENCE.as_millis() / pause.as_millis() {
        if done() {
            return;
        }
        thread::sleep(pause);
    }
    panic!("no {what} in all that time");
}
