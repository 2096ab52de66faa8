//! Complete jobs as real processes on loopback, with the reports and exit codes that the executor
//! sees.

use crate::rig::reports::{evaluations, interrupted, last_accuracy, samples, written};
use crate::rig::{Rig, RigLaunch, spec};
use muster_model::assignment::{TaskReport, exit_code};
use muster_model::task::Role;
use serde_json::json;
use std::fs;
use std::process::Command;

#[test]
fn a_job_trains_to_its_end_and_leaves_a_model() {
    let rig = Rig::new();
    let mut revision = rig.start(&RigLaunch::new(
        1,
        1,
        1,
        spec(json!({ "checkpoint": { "every_steps": 25, "keep": 2 } })),
    ));
    revision.succeed();
    let events = revision.chief().events();
    assert_eq!(events[0], TaskReport::Ready { from_step: 0 });
    let Some(TaskReport::Finished {
        step: 60,
        reason,
        model_path,
    }) = events.last()
    else {
        panic!("{events:?}");
    };
    assert_eq!(reason, "trained 3 epochs");
    assert!(rig.checkpoint_root().join(model_path).is_file());
    // The number of steps kept depends on the speed of the disk; the newest two are always kept.
    let written: Vec<u64> = events.iter().filter_map(written).collect();
    assert_eq!((written[0], written.last()), (25, Some(&60)));
    let newest = written.iter().rev().take(2).rev();
    let newest: Vec<String> = newest.map(|step| format!("step-{step:010}-r1")).collect();
    assert_eq!(rig.checkpoints(), newest);
    if written.len() > 2 {
        assert!(events.contains(&TaskReport::CheckpointPruned { step: 25 }));
    }
    let accuracies: Vec<f64> = events
        .iter()
        .filter_map(|event| match event {
            TaskReport::Evaluated { evaluation } => evaluation.accuracy,
            _ => None,
        })
        .collect();
    assert_eq!(accuracies.len(), 3, "one evaluation an epoch");
    assert!(accuracies[2] > 0.8, "{accuracies:?}");
    let samples = samples(&events);
    assert_eq!(samples.last().unwrap().step, 60);
    assert!(
        samples
            .iter()
            .all(|sample| sample.examples_per_s.unwrap() > 0.0 && sample.loss.is_finite())
    );
}

/// Twenty steps are one epoch; a step that is due by both rules is evaluated once.
#[test]
fn test_split_is_evaluated_at_the_documented_steps() {
    let rig = Rig::new();
    let document = spec(json!({ "evaluate": { "every_steps": 15 } }));
    let mut revision = rig.start(&RigLaunch::new(1, 1, 1, document));
    revision.succeed();
    let events = revision.chief().events();
    let evaluations = evaluations(&events);
    let steps: Vec<u64> = evaluations.iter().map(|one| one.step).collect();
    assert_eq!(steps, [15, 20, 30, 40, 45, 60]);
}

/// With the same layout, a checkpoint guarantees the same bits.
#[test]
fn stopped_and_resumed_run_has_the_bits_of_a_straight_run() {
    let document =
        json!({ "stop": { "steps": 400 }, "exchange": { "consistency": { "kind": "bsp" } } });
    let straight = Rig::new();
    straight
        .start(&RigLaunch::new(1, 2, 2, spec(document.clone())))
        .succeed();

    let rig = Rig::new();
    let mut first = rig.start(&RigLaunch::new(1, 2, 2, spec(document.clone())));
    first.chief().wait_for("progress", |event| {
        samples(std::slice::from_ref(event)).pop()
    });
    first.terminate();
    first.succeed();
    let step = first.chief().wait_for("its stop", interrupted);
    assert!(
        step > 0 && step < 400,
        "stopped in the middle: {step}\n{}",
        first.logs()
    );

    let mut second = rig.start(&RigLaunch::new(2, 2, 2, spec(document)).resuming(step));
    second.succeed();
    assert_eq!(
        second.chief().events()[0],
        TaskReport::Ready { from_step: step }
    );
    assert_eq!(straight.final_sha256(1), rig.final_sha256(2));
}

#[test]
fn killed_and_resumed_run_has_the_bits_of_a_straight_run() {
    let document = json!({ "stop": { "steps": 1200 }, "checkpoint": { "every_steps": 40, "every_minutes": null, "keep": 2 } });
    let straight = Rig::new();
    straight
        .start(&RigLaunch::new(1, 2, 1, spec(document.clone())))
        .succeed();

    let rig = Rig::new();
    let mut first = rig.start(&RigLaunch::new(1, 2, 1, spec(document.clone())));
    let written = first.chief().wait_for("a checkpoint", written);
    first.kill_all();
    assert_eq!(first.wait().last(), Some(&-1));

    let mut second = rig.start(&RigLaunch::new(2, 2, 1, spec(document)).resuming(written));
    second.succeed();
    let TaskReport::Ready { from_step } = second.chief().wait_for("ready", |event| {
        matches!(event, TaskReport::Ready { .. }).then(|| event.clone())
    }) else {
        unreachable!()
    };
    assert!(from_step >= written, "{from_step}");
    assert_eq!(straight.final_sha256(1), rig.final_sha256(2));
}

#[test]
fn a_killed_chief_ends_the_others_as_peer_lost() {
    let rig = Rig::new();
    let document = spec(json!({ "stop": { "steps": 1_000_000 } }));
    let mut revision = rig.start(&RigLaunch::new(1, 3, 1, document));
    revision.chief().wait_for("progress", |event| {
        samples(std::slice::from_ref(event)).pop()
    });
    revision.chief().signal("KILL");
    assert_eq!(
        revision.wait(),
        [
            exit_code::PEER_LOST,
            -1,
            exit_code::PEER_LOST,
            exit_code::PEER_LOST
        ],
        "{}",
        revision.logs()
    );
}

#[test]
fn a_killed_shard_ends_the_workers_as_peer_lost() {
    let rig = Rig::new();
    let mut revision = rig.start(&RigLaunch::new(
        1,
        2,
        2,
        spec(json!({ "stop": { "steps": 1_000_000 } })),
    ));
    revision.chief().wait_for("progress", |event| {
        samples(std::slice::from_ref(event)).pop()
    });
    revision.task(Role::PsShard { index: 1 }).signal("KILL");
    assert_eq!(
        revision.wait(),
        [
            exit_code::PEER_LOST,
            -1,
            exit_code::PEER_LOST,
            exit_code::PEER_LOST
        ]
    );
}

#[test]
fn job_continues_at_another_size() {
    let rig = Rig::new();
    let document = spec(json!({ "stop": { "epochs": 40 } }));
    let mut first = rig.start(&RigLaunch::new(1, 2, 1, document.clone()));
    first.chief().wait_for("progress", |event| {
        samples(std::slice::from_ref(event)).pop()
    });
    first.terminate();
    first.succeed();
    let step = first.chief().wait_for("its stop", interrupted);
    assert!(step < 800);

    let mut second = rig.start(&RigLaunch::new(2, 3, 2, document.clone()).resuming(step));
    second.succeed();
    let straight = Rig::new();
    let mut whole = straight.start(&RigLaunch::new(1, 2, 1, document));
    whole.succeed();
    let [resized, whole] = [&mut second, &mut whole].map(|revision| {
        let evaluations = evaluations(&revision.chief().events());
        evaluations.last().unwrap().clone()
    });
    assert_eq!(resized.step, whole.step);
    assert!(
        (resized.loss.unwrap() - whole.loss.unwrap()).abs() < 0.02,
        "{resized:?} {whole:?}"
    );
    assert!(
        (resized.accuracy.unwrap() - whole.accuracy.unwrap()).abs() < 0.01,
        "{resized:?} {whole:?}"
    );
}

#[test]
fn damaged_checkpoint_is_set_aside_for_the_older_one() {
    let rig = Rig::new();
    let first = spec(json!({ "stop": { "steps": 30 }, "checkpoint": { "every_steps": 10 } }));
    rig.start(&RigLaunch::new(1, 1, 1, first)).succeed();
    // With a slow disk the middle checkpoint may be skipped, never the first or the last.
    let mut before = rig.checkpoints();
    assert_eq!(before.pop().unwrap(), "step-0000000030-r1");
    let before: u64 = before.pop().unwrap()[5..15].parse().unwrap();
    let model = rig
        .job_folder()
        .join("step-0000000030-r1/model.safetensors");
    let mut bytes = fs::read(&model).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&model, bytes).unwrap();

    let longer = spec(json!({ "stop": { "steps": 45 }, "checkpoint": { "every_steps": 10 } }));
    let mut second = rig.start(&RigLaunch::new(2, 1, 1, longer).resuming(30));
    second.succeed();
    let events = second.chief().events();
    assert!(
        matches!(&events[0], TaskReport::Note { message } if message.contains("step 30")),
        "{events:?}"
    );
    assert!(events.contains(&TaskReport::CheckpointPruned { step: 30 }));
    assert!(events.contains(&TaskReport::Ready { from_step: before }));
    assert!(rig.job_folder().join("damaged-step-0000000030-r1").is_dir());
}

#[test]
fn a_job_with_a_known_checkpoint_never_starts_from_nothing() {
    let rig = Rig::new();
    let mut revision = rig.start(&RigLaunch::new(2, 1, 1, spec(json!({}))).resuming(500));
    assert_eq!(revision.chief().wait().code(), Some(exit_code::FAILED));
    let events = revision.chief().events();
    assert!(
        matches!(events.last(), Some(TaskReport::Failed { retryable: false, message, .. }) if message.contains("step 500")),
        "{events:?}"
    );
}

#[test]
fn a_stale_revision_writes_nothing() {
    let rig = Rig::new();
    let document = spec(json!({ "stop": { "steps": 1_000_000 } }));
    let mut old = rig.start(&RigLaunch::new(1, 1, 1, document));
    old.chief().wait_for("progress", |event| {
        samples(std::slice::from_ref(event)).pop()
    });
    rig.start(&RigLaunch::new(
        2,
        1,
        1,
        spec(json!({ "stop": { "steps": 5 } })),
    ))
    .succeed();
    let before = rig.checkpoints();
    old.terminate();
    assert_eq!(old.chief().wait().code(), Some(exit_code::FAILED));
    assert!(old.chief().log().contains("revision 2"), "{}", old.logs());
    assert_eq!(rig.checkpoints(), before);
}

#[test]
fn divergence_is_a_failure_that_names_the_step() {
    let rig = Rig::new();
    let wild = spec(
        json!({ "engine": { "optimizer": { "kind": "sgd", "learning_rate": 100.0, "weight_decay": 1.0 } } }),
    );
    let mut revision = rig.start(&RigLaunch::new(1, 2, 1, wild));
    assert_eq!(revision.chief().wait().code(), Some(exit_code::FAILED));
    let events = revision.chief().events();
    assert!(
        matches!(events.last(), Some(TaskReport::Failed { retryable: false, message, .. }) if message.contains("step")),
        "{events:?}"
    );
}

#[test]
fn missing_data_set_is_not_retried() {
    let rig = Rig::new();
    fs::remove_dir_all(rig.dataset_root()).unwrap();
    let mut revision = rig.start(&RigLaunch::new(1, 1, 1, spec(json!({}))));
    assert_eq!(revision.chief().wait().code(), Some(exit_code::FAILED));
    let events = revision.chief().events();
    assert!(
        matches!(
            events.last(),
            Some(TaskReport::Failed {
                retryable: false,
                ..
            })
        ),
        "{events:?}"
    );
}

#[test]
fn ssp_and_asp_train_as_well() {
    for consistency in [
        json!({ "kind": "ssp", "staleness": 2 }),
        json!({ "kind": "ssp", "staleness": 2, "eager": true }),
        json!({ "kind": "asp" }),
    ] {
        let rig = Rig::new();
        let document = json!({
            "stop": { "epochs": 10 },
            "exchange": { "consistency": consistency },
            "engine": { "optimizer": { "kind": "sgd", "learning_rate": 0.1 } },
        });
        let mut revision = rig.start(&RigLaunch::new(1, 3, 2, spec(document)));
        revision.succeed();
        let events = revision.chief().events();
        let accuracy = last_accuracy(&events);
        assert!(accuracy > 0.8, "{consistency}: {accuracy}");
    }
}

/// With one bit per value in both directions, and with one value in a hundred.
#[test]
fn a_job_with_codecs_learns_as_well() {
    let codecs = [
        json!({ "codec": { "kind": "one_bit" } }),
        json!({ "codec": { "kind": "top_k", "density": 0.01 } }),
    ];
    for (revision, compression) in (1..).zip(codecs) {
        let document = spec(json!({
            "stop": { "epochs": 20 },
            "exchange": { "compression": compression },
        }));
        let rig = Rig::new();
        let mut tasks = rig.start(&RigLaunch::new(revision, 2, 2, document));
        tasks.succeed();
        let accuracy = last_accuracy(&tasks.chief().events());
        assert!(accuracy > 0.9, "{compression}: {accuracy}");
    }
}

/// Other programs can read the model: the file is self-contained, with names and shapes.
/// `MUSTER_ONNX_PYTHON` has the library.
#[test]
fn pythons_safetensors_loads_the_model() {
    let python = std::env::var("MUSTER_ONNX_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let rig = Rig::new();
    let cnn = json!({ "model": { "kind": "cnn", "channels": [4], "dense": [16] } });
    rig.start(&RigLaunch::new(
        1,
        1,
        1,
        spec(json!({ "engine": cnn, "stop": { "steps": 3 } })),
    ))
    .succeed();
    let script = "import sys, safetensors.numpy as s\n\
        t = s.load_file(sys.argv[1])\n\
        print(sorted((k, v.shape) for k, v in t.items()))";
    let output = Command::new(python)
        .args(["-c", script])
        .arg(rig.job_folder().join("final-r1/model.safetensors"))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("('conv1.weight', (3, 3, 1, 4))"), "{text}");
    assert!(text.contains("('logits.bias', (10,))"), "{text}");
}
