//! Best checkpoints of jobs with encoded gradients: each has exactly the evaluated parameters and
//! their measures.

use crate::rig::reports::evaluations;
use crate::rig::workers::Crew;
use crate::rig::{Rig, RigLaunch, RigTask, TEST, TRAIN, spec};
use muster_compute::model::Batch;
use muster_model::assignment::TaskReport;
use muster_model::spec::{JobSpec, Topology};
use muster_training::checkpoint::Manifest;
use muster_training::document;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;

const BEST: usize = 2;

/// Learns so slowly that later evaluations are better, and that more than two checkpoints are among
/// the best when they are written.
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

/// Reports of the coordinator of a job of two workers, after its end.
fn done(rig: &Rig, spec: &JobSpec) -> Vec<TaskReport> {
    if spec.exchange.topology == Topology::AllReduce {
        let mut crew = Crew::start(rig, &RigLaunch::new(1, 2, 0, spec.clone()));
        crew.succeed();
        return crew.tasks()[0].events();
    }
    let mut revision = rig.start(&RigLaunch::new(1, 2, 2, spec.clone()));
    revision.succeed();
    let chief: &mut RigTask = revision.chief();
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

/// Checks that a checkpoint's measures are those of its parameters. Returns its step.
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
fn best_checkpoints_have_the_evaluated_parameters() {
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
        // No other checkpoint is due before the end.
        let steps: BTreeSet<u64> = evaluated.iter().map(|evaluation| evaluation.step).collect();
        assert_eq!(steps.len(), 5, "{exchange}");
        assert!(steps.iter().all(|step| step % (TRAIN as u64 / 32) == 0));
        assert!(
            written.is_subset(&steps),
            "{exchange}: {written:?} of {steps:?}"
        );

        // The first evaluation is the best so far while no write is in progress, and the last
        // checkpoint is that of the end. One between them may have occurred while a slow disk still
        // wrote the previous one.
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

/// A checkpoint is due after each step and takes longer than a step, so one is always being written
/// before the end.
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
fn last_checkpoint_is_evaluated_during_an_earlier_write() {
    let spec = always_writing(&json!({ "steps": 12 }));
    let rig = Rig::new();
    let events = done(&rig, &spec);
    let checkpoints = rig.checkpoints();
    let steps: BTreeSet<u64> = checkpoints
        .iter()
        .map(|name| says_what_it_holds(&rig, &spec, name))
        .collect();
    assert_eq!(steps.last(), Some(&12));
    let evaluations = evaluations(&events);
    assert_eq!(evaluations.len(), 12, "each step is measured once");
    // The outcome of the write in progress is reported as well.
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

/// No task knows one step earlier that the next evaluation will reach the target.
#[test]
fn last_checkpoint_of_an_early_end_has_the_evaluated_state() {
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
