//! A job of one worker whose state stays on its GPU (`exchange.topology: all_reduce`), as a real
//! process. The crate's own tests compare its results with the CPU on an emulated GPU.

#![expect(clippy::disallowed_methods, reason = "measures steps")]

use crate::rig::reports::{interrupted, samples};
use crate::rig::{self, Revision, Rig, RigLaunch, spec};
use muster_model::assignment::TaskReport;
use muster_model::progress::{Evaluation, Sample};
use muster_model::spec::JobSpec;
use serde_json::{Value, json};
use std::time::Instant;

/// Twenty steps per epoch, with 1.9 million parameters.
fn document(steps: u64, exchange: &Value) -> JobSpec {
    let engine = json!({ "model": { "kind": "mlp", "hidden": [1024, 1024] } });
    document_of(engine, steps, exchange)
}

fn document_of(engine: Value, steps: u64, exchange: &Value) -> JobSpec {
    let spec = spec(json!({
        "engine": engine,
        "exchange": exchange,
        "checkpoint": { "every_steps": 200, "every_minutes": null },
        "stop": { "steps": steps },
    }));
    assert_eq!(spec.validate(), Ok(()));
    spec
}

fn alone(steps: u64) -> JobSpec {
    document(steps, &json!({ "topology": "all_reduce" }))
}

fn on(device: &str) -> Rig {
    let mut rig = Rig::new();
    rig.environment.push(("MUSTER_DEVICE", device.to_owned()));
    rig.environment.push(("MUSTER_PRECISION", "f32".to_owned()));
    rig
}

fn evaluations(revision: &mut Revision) -> Vec<Evaluation> {
    rig::reports::evaluations(&revision.chief().events())
}

/// Prints means over the samples of a job that has ended; the first sample contains the warm-up.
fn print_steps(what: &str, revision: &mut Revision, took: Instant) {
    let seen = samples(&revision.chief().events());
    let rest = &seen[usize::from(seen.len() > 1)..];
    println!(
        "{what}: {:.3} ms a step by the rate of steps, {:.3} ms of it computing, {:.3} ms loading, {:.3} ms exchanging; {:.1} s in all",
        1e3 / mean(rest, |sample| sample.steps_per_s),
        mean(rest, |sample| sample.compute_ms.unwrap()),
        mean(rest, |sample| sample.data_ms.unwrap()),
        mean(rest, |sample| sample.exchange_ms.unwrap()),
        took.elapsed().as_secs_f64(),
    );
}

fn mean(samples: &[Sample], value: fn(&Sample) -> f64) -> f64 {
    samples.iter().map(value).sum::<f64>() / samples.len().max(1) as f64
}

/// The job reaches the results of the CPU, releases the GPU for one time slice, is stopped and
/// resumes, with the bits of an uninterrupted run.
#[test]
#[ignore = "needs a GPU"]
fn single_worker_job_stays_on_its_gpu() {
    let rig = on("cuda");
    let mut first = rig.start(&RigLaunch::new(1, 1, 0, alone(100_000_000)));
    let chief = &first.tasks[0];
    chief.wait_for("a checkpoint", |event| match event {
        TaskReport::CheckpointWritten { .. } => Some(()),
        _ => None,
    });
    first.tell_turn(1);
    chief.wait_for("that it stands still", |event| match event {
        TaskReport::Suspended { turn: 1, .. } => Some(()),
        _ => None,
    });
    first.tell_turn(2);
    chief.wait_for("that it goes on", |event| match event {
        TaskReport::Continued { turn: 2, .. } => Some(()),
        _ => None,
    });
    first.terminate();
    first.succeed();
    let step = first.chief().wait_for("its stop", interrupted);
    for said in ["computes on NVIDIA", "all of a step stays on the GPU"] {
        assert!(first.logs().contains(said), "{}", first.logs());
    }
    let end = step + 300;
    let began = Instant::now();
    let mut second = rig.start(&RigLaunch::new(2, 1, 0, alone(end)).resuming(step));
    second.succeed();
    print_steps("resumed", &mut second, began);

    let straight = on("cuda");
    let began = Instant::now();
    let mut whole = straight.start(&RigLaunch::new(1, 1, 0, alone(end)));
    whole.succeed();
    print_steps(&format!("{end} steps at once"), &mut whole, began);
    assert_eq!(rig.final_sha256(2), straight.final_sha256(1), "to the bit");

    let on_cpu = on("cpu");
    let mut plain = on_cpu.start(&RigLaunch::new(1, 1, 0, alone(60)));
    plain.succeed();
    let (expected, found) = (evaluations(&mut plain), evaluations(&mut whole));
    assert_eq!(expected.len(), 3, "one an epoch");
    for (expected, found) in expected.iter().zip(&found) {
        assert_eq!(found.step, expected.step);
        let expected_loss = expected.loss.unwrap();
        let off = (found.loss.unwrap() - expected_loss).abs();
        assert!(
            off < 2e-3 + 1e-2 * expected_loss,
            "{found:?}, not {expected:?}"
        );
    }

    // For comparison: the same job with a PS shard, where gradients leave the GPU.
    let sharded = on("cuda");
    let began = Instant::now();
    let through_the_host = document(300, &json!({}));
    let mut revision = sharded.start(&RigLaunch::new(1, 1, 1, through_the_host));
    revision.succeed();
    let why = "because exchange.topology is not all_reduce";
    assert!(revision.logs().contains(why), "{}", revision.logs());
    print_steps("by a PS shard", &mut revision, began);
}

/// A network with batch norm and dropout; `more` is added to the engine's settings.
fn layers_document(steps: u64, more: &Value) -> JobSpec {
    let layers = json!([
        { "kind": "conv", "channels": 8, "stride": 2, "bias": false },
        { "kind": "batch_norm", "relu": true },
        { "kind": "dropout", "share": 0.25 },
        { "kind": "dense", "width": 64 },
    ]);
    let mut engine = json!({
        "model": { "kind": "layers", "layers": layers },
        "optimizer": { "kind": "sgd", "learning_rate": 0.05, "momentum": 0.9 },
    });
    let more = more.as_object().expect("fields").clone();
    engine.as_object_mut().expect("fields").extend(more);
    document_of(engine, steps, &json!({ "topology": "all_reduce" }))
}

fn layers_trained(device: &str, steps: u64, more: &Value) -> (Rig, Revision) {
    let rig = on(device);
    let began = Instant::now();
    let mut revision = rig.start(&RigLaunch::new(1, 1, 0, layers_document(steps, more)));
    revision.succeed();
    print_steps(&format!("{more} on {device}"), &mut revision, began);
    (rig, revision)
}

/// Steps in several passes, also with a batch too large for one pass, and clipped steps, with batch
/// norm and dropout. The results are those of the CPU, and repeat bit for bit, also after a stop.
#[test]
#[ignore = "needs a GPU"]
fn clipping_and_several_passes_stay_on_the_gpu() {
    for more in [
        json!({ "accumulate": 3 }),
        json!({ "batch": 300 }),
        json!({ "clip_norm": 0.3 }),
        json!({ "batch": 300, "accumulate": 7, "clip_norm": 0.3 }),
    ] {
        let (straight, mut found) = layers_trained("cuda", 260, &more);
        let said = "all of a step stays on the GPU";
        assert!(found.logs().contains(said), "{}", found.logs());
        let (again, _) = layers_trained("cuda", 260, &more);
        assert_eq!(again.final_sha256(1), straight.final_sha256(1), "{more}");

        let (resumed, _) = layers_trained("cuda", 210, &more);
        let launch = RigLaunch::new(2, 1, 0, layers_document(260, &more)).resuming(200);
        resumed.start(&launch).succeed();
        assert_eq!(resumed.final_sha256(2), straight.final_sha256(1), "{more}");

        // Before the results differ through rounding.
        let (_, mut plain) = layers_trained("cpu", 60, &more);
        let (expected, found) = (evaluations(&mut plain), evaluations(&mut found));
        assert!(expected.len() >= 3, "{expected:?}");
        for (expected, found) in expected.iter().zip(&found) {
            let expected_loss = expected.loss.unwrap();
            let off = (found.loss.unwrap() - expected_loss).abs();
            let is_near = off < 2e-3 + 1e-2 * expected_loss;
            assert!(is_near, "{more}: {found:?}, not {expected:?}");
        }
    }
}
