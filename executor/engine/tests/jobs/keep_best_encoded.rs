//! The best checkpoints of jobs whose gradients are encoded: each is of the very parameters that were measured, and has their measures.

use crate::rig::workers::Crew;
use crate::rig::{Launch, Rig, TEST, TRAIN, Task, spec};
use muster_engine::checkpoint::Manifest;
use muster_engine::document;
use muster_engine::model::Batch;
use muster_model::assignment::TaskReport;
use muster_model::spec::{JobSpec, Topology};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;

const BEST: usize = 2;

/// Learns so slowly that later evaluations are better, and more than the two that are kept are among the best when they are made.
fn keeping_best(exchange: &Value) -> JobSpec {
    let mut all = json!({
        "engine": { "optimizer": { "kind": "sgd", "learning_rate": 0.01 } },
        "exchange": exchange,
        "checkpoint": {
            "every_minutes": null,
            "every_steps": 1000,
            "keep": 1,
            "keep_best": { "count": BEST, "by": "loss" }
        },
        "stop": { "epochs": 5 }
    });
    if exchange["topology"] == "all_reduce" {
        all["scale"] =
            json!({ "workers": { "min": 1, "max": 4 }, "ps_shards": { "min": 0, "max": 0 } });
    }
    let spec = spec(all);
    assert_eq!(spec.validate(), Ok(()));
    spec
}

/// What the chief of a job of two workers has reported, once it is done.
fn done(rig: &Rig, spec: &JobSpec) -> Vec<TaskReport> {
    if spec.exchange.topology == Topology::AllReduce {
        let mut crew = Crew::start(rig, &Launch::new(1, 2, 0, spec.clone()));
        crew.succeed();
        return crew.tasks()[0].events();
    }
    let mut revision = rig.start(&Launch::new(1, 2, 2, spec.clone()));
    revision.succeed();
    let chief: &mut Task = revision.chief();
    chief.events()
}

/// Mean test loss of the parameters in a checkpoint's folder.
fn loss_of(rig: &Rig, spec: &JobSpec, checkpoint: &str) -> f64 {
    let parameters = rig.parameters(checkpoint);
    let network = document::network(spec.engine()).unwrap();
    assert_eq!(parameters.len(), network.parameter_count());
    let data = document::dataset(spec.engine(), &rig.dataset_root()).unwrap();
    let (mut images, mut labels) = (vec![0.0; TEST * data.input.len()], vec![0; TEST]);
    let all: Vec<u32> = (0..TEST as u32).collect();
    data.test.fill(&all, &mut images, &mut labels);
    let mut workspace = network.workspace(TEST, 1);
    let batch = Batch::classes(&images, &labels);
    network
        .evaluate(&mut workspace, &parameters, &batch)
        .loss_sum
        / TEST as f64
}

/// A checkpoint's measures are those of its own parameters; its step.
fn says_what_it_holds(rig: &Rig, spec: &JobSpec, name: &str) -> u64 {
    let manifest = fs::read(rig.job_folder().join(name).join("manifest.json")).unwrap();
    let manifest: Manifest = serde_json::from_slice(&manifest).unwrap();
    let said = manifest.evaluation.expect("its measures");
    assert_eq!(said.step, manifest.step);
    let (loss, said) = (loss_of(rig, spec, name), said.loss.unwrap());
    assert!(
        (loss - said).abs() < 1e-5,
        "{:?}: {name} has a loss of {loss} and says {}",
        spec.exchange,
        said
    );
    manifest.step
}

#[test]
fn the_best_of_an_encoded_job_are_of_what_was_measured() {
    let one_bit = json!({ "codec": { "kind": "one_bit" } });
    for exchange in [
        json!({ "compression": one_bit }),
        json!({ "compression": one_bit, "consistency": { "kind": "ssp", "staleness": 2 } }),
        json!({ "topology": "all_reduce", "compression": one_bit }),
    ] {
        let (rig, spec) = (Rig::new(), keeping_best(&exchange));
        let events = done(&rig, &spec);
        let mut evaluated = Vec::new();
        let mut written = BTreeSet::new();
        for event in &events {
            match event {
                TaskReport::Evaluated { evaluation } => evaluated.push(evaluation.clone()),
                TaskReport::CheckpointWritten { checkpoint } => {
                    written.insert(checkpoint.step);
                }
                _ => {}
            }
        }
        // Nothing else is due before the end.
        let steps: BTreeSet<u64> = evaluated.iter().map(|evaluation| evaluation.step).collect();
        assert_eq!(steps.len(), 5, "{exchange}");
        assert!(steps.iter().all(|step| step % (TRAIN as u64 / 32) == 0));
        assert!(
            written.is_subset(&steps),
            "{exchange}: {written:?} of {steps:?}"
        );

        // The first is the best so far when nothing is being written yet, and the last is the end's; one between may have come while a
        // slow disk still wrote the one before it.
        assert!(
            written.first() == steps.first() && written.last() == steps.last(),
            "{exchange}: {written:?} of {steps:?}"
        );
        evaluated.retain(|evaluation| written.contains(&evaluation.step));
        evaluated.sort_by(|a, b| a.loss.unwrap().total_cmp(&b.loss.unwrap()));
        let best: BTreeSet<u64> = evaluated[..BEST].iter().map(|best| best.step).collect();
        let mut kept = BTreeSet::new();
        for name in rig.checkpoints() {
            kept.insert(says_what_it_holds(&rig, &spec, &name));
        }
        assert!(
            kept.is_superset(&best),
            "{exchange}: {kept:?} are kept of {best:?}"
        );
        assert!(kept.len() <= BEST + 1, "{exchange}: {kept:?}");
    }
}

/// A checkpoint is due after each step, and takes longer than a step: before the end one is always being written.
fn always_writing(stop: &Value) -> JobSpec {
    spec(json!({
        "engine": {
            "model": { "kind": "mlp", "hidden": [2048] },
            "optimizer": { "kind": "sgd", "learning_rate": 0.01 }
        },
        "exchange": { "compression": { "codec": { "kind": "one_bit" } } },
        "evaluate": { "every_steps": 1 },
        "checkpoint": {
            "every_minutes": null,
            "keep": 1,
            "keep_best": { "count": BEST, "by": "loss" }
        },
        "stop": stop
    }))
}

#[test]
fn the_last_is_of_what_was_measured_though_the_one_before_is_still_written() {
    let spec = always_writing(&json!({ "steps": 12 }));
    let rig = Rig::new();
    let events = done(&rig, &spec);
    let checkpoints = rig.checkpoints();
    let steps: BTreeSet<u64> = checkpoints
        .iter()
        .map(|name| says_what_it_holds(&rig, &spec, name))
        .collect();
    assert_eq!(steps.last(), Some(&12));
    let is_measure = |event: &&TaskReport| matches!(event, TaskReport::Evaluated { .. });
    let measures = events.iter().filter(is_measure).count();
    assert_eq!(measures, 12, "each step is measured once");
    // Nor is the outcome of what was being written forgotten.
    let mut told = BTreeSet::new();
    for event in &events {
        match event {
            TaskReport::CheckpointWritten { checkpoint } => told.insert(checkpoint.step),
            TaskReport::CheckpointPruned { step } => told.remove(step),
            _ => true,
        };
    }
    assert_eq!(told, steps);
}

/// Nobody knows one step before that the next one is good enough to be the last.
#[test]
fn the_last_of_a_job_that_ends_early_is_of_what_was_measured() {
    let spec = always_writing(&json!({
        "steps": 400,
        "target": { "metric": "test_accuracy", "value": 0.3 }
    }));
    let rig = Rig::new();
    let events = done(&rig, &spec);
    let last = rig
        .checkpoints()
        .iter()
        .map(|name| says_what_it_holds(&rig, &spec, name))
        .max();
    let Some(TaskReport::Finished { step, reason, .. }) = events.last() else {
        panic!("{events:?}");
    };
    assert!(*step < 400, "{reason}");
    assert_eq!(last, Some(*step));
}
