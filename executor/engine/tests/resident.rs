//! A whole job of one worker that leaves everything on its GPU (`exchange.topology: all_reduce`), as a real process. What it computes the crate's
//! own tests hold to the CPU on an emulated GPU.

#![expect(clippy::disallowed_methods, reason = "measures steps")]

mod rig;

use muster_model::assignment::{Peers, TaskReport};
use muster_model::progress::Evaluation;
use muster_model::spec::JobSpec;
use rig::{Launch, Revision, Rig, interrupted, samples, spec};
use serde_json::{Value, json};
use std::time::Instant;

/// Twenty steps an epoch, of 1.9 million parameters.
fn document(steps: u64, exchange: &Value) -> JobSpec {
    let spec = spec(json!({
        "engine": { "model": { "kind": "mlp", "hidden": [1024, 1024] } },
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
    let pick = |event: &TaskReport| match event {
        TaskReport::Evaluated { evaluation } => Some(evaluation.clone()),
        _ => None,
    };
    let events = revision.chief().events();
    events.iter().filter_map(pick).collect()
}

/// Mean over the samples of a job that has ended, the first of which has the warm-up.
fn print_steps(what: &str, revision: &mut Revision, took: Instant) {
    let seen = samples(&revision.chief().events());
    let rest = &seen[usize::from(seen.len() > 1)..];
    let mean = |of: fn(&muster_model::progress::Sample) -> f64| {
        rest.iter().map(of).sum::<f64>() / rest.len().max(1) as f64
    };
    println!(
        "{what}: {:.3} ms a step by the rate of steps, {:.3} ms of it computing, {:.3} ms loading, {:.3} ms exchanging; {:.1} s in all",
        1e3 / mean(|sample| sample.steps_per_s),
        mean(|sample| sample.compute_ms),
        mean(|sample| sample.data_ms),
        mean(|sample| sample.exchange_ms),
        took.elapsed().as_secs_f64(),
    );
}

/// It learns what the CPU does, gives the GPU to others for a turn, is stopped and goes on, to the bit as if nothing had been.
#[test]
#[ignore = "needs a GPU"]
fn a_job_of_one_worker_stays_on_its_gpu() {
    let rig = on("cuda");
    let mut first = rig.start(&Launch::new(1, 1, 0, alone(100_000_000)));
    let turn = |revision: &Revision, turn| {
        let peers = Peers {
            turn,
            ..revision.peers.clone()
        };
        revision.tasks[0].tell(&peers);
    };
    let chief = &first.tasks[0];
    chief.wait_for("a checkpoint", |event| match event {
        TaskReport::CheckpointWritten { .. } => Some(()),
        _ => None,
    });
    turn(&first, 1);
    chief.wait_for("that it stands still", |event| match event {
        TaskReport::Suspended { turn: 1, .. } => Some(()),
        _ => None,
    });
    turn(&first, 2);
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
    let mut second = rig.start(&Launch::new(2, 1, 0, alone(end)).resuming(step));
    second.succeed();
    print_steps("resumed", &mut second, began);

    let straight = on("cuda");
    let began = Instant::now();
    let mut whole = straight.start(&Launch::new(1, 1, 0, alone(end)));
    whole.succeed();
    print_steps(&format!("{end} steps at once"), &mut whole, began);
    assert_eq!(rig.final_sha256(2), straight.final_sha256(1), "to the bit");

    let on_cpu = on("cpu");
    let mut plain = on_cpu.start(&Launch::new(1, 1, 0, alone(60)));
    plain.succeed();
    let (expected, found) = (evaluations(&mut plain), evaluations(&mut whole));
    assert_eq!(expected.len(), 3, "one an epoch");
    for (expected, found) in expected.iter().zip(&found) {
        assert_eq!(found.step, expected.step);
        let off = (found.loss - expected.loss).abs();
        assert!(
            off < 2e-3 + 1e-2 * expected.loss,
            "{found:?}, not {expected:?}"
        );
    }

    // For comparison: the same by a PS shard, where gradients leave the GPU.
    let sharded = on("cuda");
    let began = Instant::now();
    let through_the_host = document(300, &json!({}));
    let mut revision = sharded.start(&Launch::new(1, 1, 1, through_the_host));
    revision.succeed();
    let why = "because exchange.topology is not all_reduce";
    assert!(revision.logs().contains(why), "{}", revision.logs());
    print_steps("by a PS shard", &mut revision, began);
}
