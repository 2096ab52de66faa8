//! Real processes whose threads train on the same parameters without locks
//! (`engine.hogwild_threads`).

use crate::rig::reports::{accuracy_at, evaluations, interrupted, samples};
use crate::rig::workers::Crew;
use crate::rig::{Revision, Rig, RigLaunch, RigTask, spec};
use muster_model::assignment::TaskReport;
use muster_model::spec::JobSpec;
use muster_model::task::Role;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Plain SGD on one worker.
fn document(steps: u64, threads: Option<u32>) -> JobSpec {
    let mut engine = json!({
        "optimizer": { "kind": "sgd", "learning_rate": 0.1, "weight_decay": 0.0001 },
        "schedule": { "warmup_steps": 20, "decay": { "kind": "cosine", "total_steps": steps } },
    });
    if let Some(threads) = threads {
        engine["hogwild_threads"] = Value::from(threads);
    }
    let spec = spec(json!({
        "engine": engine,
        "exchange": { "topology": "all_reduce" },
        "scale": { "workers": { "min": 1, "max": 1 }, "ps_shards": { "min": 0, "max": 0 } },
        "checkpoint": { "every_steps": 100, "every_minutes": null, "keep": 100 },
        "evaluate": { "every_steps": 300 },
        "stop": { "steps": steps },
    }));
    assert_eq!(spec.validate(), Ok(()));
    spec
}

fn start(rig: &Rig, revision: u64, document: JobSpec) -> Revision {
    rig.start(&RigLaunch::new(revision, 1, 0, document))
}

/// Real images: see `scripts/ensure-dataset`.
fn fashion() -> Rig {
    let root = std::env::var_os("MUSTER_DATASETS").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").expect("a home")).join(".cache/muster/datasets"),
        PathBuf::from,
    );
    assert!(
        root.join("fashion-mnist").is_dir(),
        "Fashion-MNIST is not in {}; scripts/ensure-dataset fashion-mnist brings it",
        root.display()
    );
    Rig::on(&root)
}

fn accuracy(chief: &RigTask, step: u64) -> f64 {
    assert_eq!(chief.role, Role::Worker { rank: 0 });
    accuracy_at(chief, step)
}

#[test]
fn one_lock_free_thread_has_the_bits_of_plain_training() {
    let plain = Rig::new();
    Crew::start(&plain, &RigLaunch::new(1, 1, 0, document(240, None))).succeed();
    let rig = Rig::new();
    start(&rig, 1, document(240, Some(1))).succeed();
    assert_eq!(rig.final_sha256(1), plain.final_sha256(1));
}

/// Four threads reach the accuracy of one, and actions that are due at a step happen at that step.
#[test]
fn lock_free_threads_learn_together() {
    let rig = fashion();
    let mut alone = Crew::start(&rig, &RigLaunch::new(1, 1, 0, document(1200, None)));
    alone.succeed();
    let expected = accuracy(alone.chief(), 1200);

    let rig = fashion();
    let mut together = start(&rig, 1, document(1200, Some(4)));
    together.succeed();
    let got = accuracy(&together.tasks[0], 1200);
    assert!(got > 0.75 && got > expected - 0.03, "{got}, {expected}");
    let seen = samples(&together.tasks[0].events());
    let last = seen.last().expect("it has told of its progress");
    assert_eq!((last.step, last.workers, last.ps_shards), (1200, 1, 0));
    let evaluations = evaluations(&together.tasks[0].events());
    let steps: Vec<u64> = evaluations
        .iter()
        .map(|evaluation| evaluation.step)
        .collect();
    assert_eq!(steps, [300, 600, 900, 1200]);
}

/// The step from which a task reports to start.
fn begun(task: &RigTask) -> u64 {
    task.wait_for("its start", |event| match event {
        TaskReport::Ready { from_step } => Some(*from_step),
        _ => None,
    })
}

/// Step of a checkpoint after `step`.
fn checkpoint_after(task: &RigTask, step: u64) -> u64 {
    task.wait_for("a checkpoint", |event| match event {
        TaskReport::CheckpointWritten { checkpoint } if checkpoint.step > step => {
            Some(checkpoint.step)
        }
        _ => None,
    })
}

/// One thread, whose bits are known, is stopped and later killed: it does each step once, with its
/// own batch and learning rate.
#[test]
fn resumed_single_thread_has_the_same_bits() {
    let document = document(6_000, Some(1));
    let straight = Rig::new();
    start(&straight, 1, document.clone()).succeed();

    let rig = Rig::new();
    let mut first = start(&rig, 1, document.clone());
    checkpoint_after(&first.tasks[0], 0);
    first.tasks[0].signal("TERM");
    first.succeed();
    let step = first.tasks[0].wait_for("its stop", interrupted);
    assert!((1..6_000).contains(&step), "in the middle: {step}");
    let second = RigLaunch::new(2, 1, 0, document.clone());
    let mut second = rig.start(&second.resuming(step));
    assert_eq!(begun(&second.tasks[0]), step);
    let written = checkpoint_after(&second.tasks[0], step);
    second.tasks[0].child.kill().unwrap();
    second.tasks[0].child.wait().unwrap();
    let third = RigLaunch::new(3, 1, 0, document);
    rig.start(&third.resuming(written)).succeed();
    assert_eq!(rig.final_sha256(3), straight.final_sha256(1));
}

/// A job that is stopped within a round ends at a whole step and continues from it; also after
/// SIGKILL.
#[test]
fn stopped_lock_free_job_continues_at_its_step() {
    let rig = Rig::new();
    let mut first = start(&rig, 1, document(100_000, Some(3)));
    let written = checkpoint_after(&first.tasks[0], 0);
    first.tasks[0].signal("TERM");
    first.succeed();
    let step = first.tasks[0].wait_for("its stop", interrupted);
    assert!(step >= written, "{step}, {written}");

    let second = RigLaunch::new(2, 1, 0, document(100_000, Some(3)));
    let mut second = rig.start(&second.resuming(step));
    assert_eq!(begun(&second.tasks[0]), step);
    let written = checkpoint_after(&second.tasks[0], step);
    second.tasks[0].child.kill().unwrap();
    second.tasks[0].child.wait().unwrap();
    let end = written + 300;
    let mut document = document(100_000, Some(3));
    document.stop.steps = Some(end);
    let mut third = rig.start(&RigLaunch::new(3, 1, 0, document).resuming(written));
    third.succeed();
    // One more checkpoint may have been written before the kill.
    assert!(begun(&third.tasks[0]) >= written);
    let seen = samples(&third.tasks[0].events());
    assert_eq!(seen.last().map(|sample| sample.step), Some(end));
    let got = accuracy(&third.tasks[0], end);
    assert!(got > 0.5, "of ten classes: {got}");
}
