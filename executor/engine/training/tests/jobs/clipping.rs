//! Clipping with PS shards: the norm is that of the whole gradient, of which each shard has only a
//! part.

use crate::loopback::{BATCH, LoopbackJob, forever, fresh, gradients, size, stats, train};
use crate::rig::reports::samples;
use crate::rig::workers::Crew;
use crate::rig::{Rig, RigLaunch, spec};
use muster_compute::optimizer::{OptimizerConfig, UpdateRule, clip_factor};
use muster_model::assignment::TaskReport;
use muster_model::spec::{Consistency, JobSpec};
use muster_model::task::Role;
use muster_training::worker::{Reply, Shards};
use serde_json::json;
use std::thread;

const LIMIT: f64 = 3.0;

fn momentum() -> OptimizerConfig {
    OptimizerConfig::new(UpdateRule::Sgd {
        lr: 0.1,
        momentum: 0.9,
        nesterov: false,
        weight_decay: 0.0,
    })
}

/// Computes the same in one process: the mean of these ranks' gradients, clipped. Returns the
/// parameters and the number of clipped steps.
fn plain(steps: &[&[u32]]) -> (Vec<f32>, usize) {
    let mut parameters = fresh().parameters;
    let mut state = vec![0.0; size()];
    let mut clipped = 0;
    for (step, ranks) in steps.iter().enumerate() {
        let step = step as u64;
        let targets = BATCH as usize / 4 * ranks.len();
        let mut mean = vec![0.0; size()];
        for &rank in *ranks {
            for (mean, value) in mean.iter_mut().zip(gradients(rank, step)) {
                *mean += value / targets as f32;
            }
        }
        let norm = mean.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>();
        let factor = clip_factor(LIMIT, norm.sqrt());
        clipped += usize::from(factor < 0.5);
        momentum().update(step, &mut parameters, &mean, &mut state, factor as f32);
    }
    (parameters, clipped)
}

fn assert_close(got: &[f32], expected: &[f32]) {
    for (got, expected) in got.iter().zip(expected) {
        assert!((got - expected).abs() < 1e-5, "{got} is not {expected}");
    }
}

/// Three shards end their steps at the same time, repeatedly. A shard that waited for another while
/// it holds its lock would deadlock.
#[test]
fn clipped_steps_match_one_process_for_every_layout() {
    let all: &[u32] = &[0, 1, 2, 3];
    let (expected, clipped) = plain(&[all; 25]);
    assert_eq!(clipped, 25, "there is something to clip");
    let mut first: Option<Vec<f32>> = None;
    for ps_shards in [1, 2, 3, 5] {
        let bsp = Consistency::default();
        let job = LoopbackJob::start_clipping(4, ps_shards, bsp, momentum(), Some(LIMIT));
        let (_joined, parameters, _) = train(job.joined(0), 0, 25);
        assert_close(&parameters, &expected);
        let again = {
            let job = LoopbackJob::start_clipping(4, ps_shards, bsp, momentum(), Some(LIMIT));
            train(job.joined(0), 0, 25).1
        };
        assert_eq!(parameters, again, "the same bits each time");
        let first = first.get_or_insert_with(|| parameters.clone());
        assert_close(&parameters, first);
    }
}

fn push(shards: &mut Shards, rank: u32, step: u64) -> (u64, Vec<f32>, u64) {
    let mut parameters = vec![0.0; size()];
    let own = gradients(rank, step);
    let reply = shards.push_pull(step, stats(rank), &own, &mut parameters, &forever);
    match reply.unwrap() {
        Reply::Parameters { clock, stats } => (clock, parameters, stats.dropped),
        other => panic!("{other:?}"),
    }
}

/// With a backup worker, the norm is that of the mean of the workers in time; late gradients change
/// nothing.
#[test]
fn late_worker_is_not_in_the_norm() {
    let bsp = Consistency::Bsp { backup: 1 };
    let job = LoopbackJob::start_clipping(3, 2, bsp, momentum(), Some(LIMIT));
    let mut joined = job.joined(0);
    let mut slow = joined.pop().unwrap();
    for step in 0..2 {
        let (chief, second) = joined.split_at_mut(1);
        let [own, other] = thread::scope(|scope| {
            let other = scope.spawn(|| push(&mut second[0], 1, step));
            [push(&mut chief[0], 0, step), other.join().unwrap()]
        });
        assert_eq!(own.1, other.1);
    }
    let (expected, clipped) = plain(&[&[0, 1], &[0, 1]]);
    assert_eq!(clipped, 2);
    let (clock, parameters, _) = push(&mut slow, 2, 0);
    assert_eq!(clock, 2);
    assert_close(&parameters, &expected);
}

fn document(consistency: &serde_json::Value, norm: Option<f64>, replicas: u32) -> JobSpec {
    let spec = spec(json!({
        "engine": { "optimizer": { "kind": "sgd", "learning_rate": 60.0 }, "clip_norm": norm },
        "exchange": { "consistency": consistency, "shard_replicas": replicas },
        "stop": { "steps": 700 },
        "scale": { "workers": { "min": 1, "max": 2 }, "ps_shards": { "min": 2, "max": 2 } }
    }));
    assert_eq!(spec.validate(), Ok(()));
    spec
}

/// Loss of the newest evaluation; `None` if training failed.
fn loss(events: &[TaskReport]) -> Option<f64> {
    events.iter().rev().find_map(|event| match event {
        TaskReport::Evaluated { evaluation } => evaluation.loss,
        _ => None,
    })
}

/// Real processes: with a rate at which training would diverge, clipping prevents the divergence.
#[test]
fn clipped_training_does_not_diverge() {
    for consistency in [
        json!({ "kind": "bsp" }),
        json!({ "kind": "ssp", "staleness": 1 }),
    ] {
        let [with, without] = [Some(0.005), None].map(|norm| {
            let rig = Rig::new();
            let mut revision = rig.start(&RigLaunch::new(1, 2, 2, document(&consistency, norm, 0)));
            revision.wait();
            loss(&revision.chief().events())
        });
        assert!(with.is_some_and(|loss| loss < 2.0), "{with:?}");
        // A constant guess has 2.3. With staleness the losses of runs differ.
        assert!(without.is_none_or(|loss| loss > 5.0), "{without:?}");
    }
}

/// Loss of a job that encodes with Deep Gradient Compression; `None` if training failed.
fn loss_with_dgc(topology: &str, norm: Option<f64>) -> Option<f64> {
    let dgc = json!({ "codec": { "kind": "dgc", "density": 0.1, "momentum": 0.9 } });
    let mut all = json!({
        "engine": {
            "optimizer": { "kind": "sgd", "learning_rate": 60.0 }, "clip_norm": norm
        },
        "exchange": { "topology": topology, "compression": dgc },
        "stop": { "steps": 300 }
    });
    let rig = Rig::new();
    if topology == "all_reduce" {
        all["scale"] =
            json!({ "workers": { "min": 1, "max": 4 }, "ps_shards": { "min": 0, "max": 0 } });
        let mut crew = Crew::start(&rig, &RigLaunch::new(1, 2, 0, spec(all)));
        crew.wait();
        return loss(&crew.tasks[0].events());
    }
    let mut revision = rig.start(&RigLaunch::new(1, 2, 2, spec(all)));
    revision.wait();
    loss(&revision.chief().events())
}

/// With Deep Gradient Compression every worker clips its own part, with both topologies, and no
/// task waits for the norm of the sum.
#[test]
fn clipped_training_with_dgc_does_not_diverge() {
    for topology in ["parameter_server", "all_reduce"] {
        let (with, without) = (
            loss_with_dgc(topology, Some(0.0002)),
            loss_with_dgc(topology, None),
        );
        // Ten classes, so better than random.
        assert!(with.is_some_and(|loss| loss < 2.3), "{topology}: {with:?}");
        assert!(
            without.is_none_or(|loss| loss > 10.0),
            "{topology}: {without:?}"
        );
    }
}

/// A promoted replica continues a lost shard, and its part is in the norm.
#[test]
fn promoted_replica_continues_clipping() {
    let rig = Rig::new();
    let spec = document(&json!({ "kind": "bsp" }), Some(0.005), 1);
    let mut revision = rig.start(&RigLaunch::new(1, 2, 2, spec));
    revision.chief().wait_for("progress", |event| {
        samples(std::slice::from_ref(event)).pop()
    });
    let shard = revision.task(Role::PsShard { index: 1 });
    shard.child.kill().unwrap();
    shard.child.wait().unwrap();
    revision.chief().wait_for_log("continues from step");
    revision.wait();
    let events = revision.chief().events();
    assert!(
        matches!(events.last(), Some(TaskReport::Finished { step: 700, .. })),
        "{}",
        revision.logs()
    );
    assert!(loss(&events).is_some_and(|loss| loss < 2.0), "{events:?}");
}
