//! Jobs with local aggregation: real task processes, some of which are killed, join later or leave.

use crate::rig::reports::{interrupted, samples};
use crate::rig::{Revision, Rig, RigLaunch, spec};
use muster_model::assignment::TaskReport;
use muster_model::spec::JobSpec;
use muster_model::task::Role;
use serde_json::{Value, json};
use std::thread;
use std::time::Duration;

fn aggregated(steps: u64, engine: &Value, exchange: &Value) -> JobSpec {
    let mut exchange = exchange.clone();
    exchange["local_aggregation"] = json!(true);
    let spec = spec(json!({
        "engine": engine,
        "exchange": exchange,
        "scale": { "workers": { "min": 1, "max": 8 }, "ps_shards": { "min": 2, "max": 3 } },
        "checkpoint": { "every_steps": 1000, "every_minutes": null },
        "stop": { "steps": steps }
    }));
    assert_eq!(spec.validate(), Ok(()));
    spec
}

fn on_nodes(nodes: u32) -> Rig {
    let mut rig = Rig::new();
    rig.nodes = nodes;
    rig
}

/// Final model, last noise scale and logs.
fn trained(rig: &Rig, launch: &RigLaunch) -> (String, Option<f64>, String) {
    let mut running = rig.start(launch);
    running.succeed();
    let samples = samples(&running.chief().events());
    let noise = samples.iter().rev().find_map(|sample| sample.noise_scale);
    (rig.final_sha256(launch.revision), noise, running.logs())
}

fn met(workers: usize) -> String {
    format!("gradients of {workers} workers of this node are added up")
}

fn parted(logs: &str) -> bool {
    logs.contains("each pushes by itself") || logs.contains("went on without the other workers")
}

/// All workers on one node have the same bits: they add up in memory what the shard would add up,
/// in the same order. Their noise scale differs in bits, because other tasks measure it.
#[test]
fn local_aggregation_on_one_node_changes_no_bit() {
    let whole = [
        json!({}),
        json!({ "clip_norm": 0.05 }),
        json!({ "accumulate": 2, "optimizer": { "kind": "lars", "learning_rate": 0.1 } }),
    ];
    for engine in whole {
        let spec = aggregated(60, &engine, &json!({}));
        let together = RigLaunch::new(1, 3, 2, spec.clone());
        let mut alone = together.clone();
        alone.spec.exchange.local_aggregation = false;
        let (of_all, noise, logs) = trained(&on_nodes(1), &together);
        assert_eq!(logs.matches(&met(3)).count(), 3, "{logs}");
        assert!(!parted(&logs), "{logs}");
        let (of_each, noise_of_each, _) = trained(&on_nodes(1), &alone);
        assert_eq!(of_all, of_each, "{engine}");
        let (a, b) = (noise.unwrap(), noise_of_each.unwrap());
        assert!((a / b - 1.0).abs() < 1e-3, "{a} {b}");
    }
}

/// Two nodes with two workers each: all runs have the same bits, which are close to those without
/// aggregation.
#[test]
fn runs_on_two_nodes_repeat_bit_for_bit() {
    let spec = aggregated(60, &json!({}), &json!({}));
    let launch = RigLaunch::new(1, 4, 2, spec);
    let (first, _, logs) = trained(&on_nodes(2), &launch);
    assert_eq!(logs.matches(&met(2)).count(), 4, "{logs}");
    assert_eq!(first, trained(&on_nodes(2), &launch).0);
}

fn at_step(revision: &mut Revision, step: u64) {
    revision.chief().wait_for("progress", |event| {
        samples(std::slice::from_ref(event))
            .pop()
            .filter(|sample| sample.step >= step)
    });
}

/// All tasks except the killed one exit with 0, the coordinator at the last step, and no task was
/// restarted.
fn finish(revision: &mut Revision, killed: &[Role], steps: u64) {
    let codes = revision.wait();
    for (task, &code) in revision.tasks.iter().zip(&codes) {
        let expected = if killed.contains(&task.role) { -1 } else { 0 };
        assert_eq!(code, expected, "{}\n{}", task.role, revision.logs());
    }
    let events = revision.chief().events();
    let is_last =
        |report: &TaskReport| matches!(report, TaskReport::Finished { step, .. } if *step == steps);
    assert!(events.last().is_some_and(is_last), "{events:?}");
    let starts = events
        .iter()
        .filter(|event| matches!(event, TaskReport::Ready { .. }));
    assert_eq!(starts.count(), 1, "{events:?}");
}

/// A worker is killed at various moments of a step, either the one that pushes or one whose
/// gradients it pushes. The others continue alone and aggregate again in the next view.
#[test]
fn others_continue_when_an_aggregating_worker_is_killed() {
    for (at, rank) in [(0, 1), (1, 3), (2, 2), (3, 1), (4, 3)] {
        let rig = on_nodes(2);
        let spec = aggregated(1500, &json!({}), &json!({}));
        let mut running = rig.start(&RigLaunch::new(1, 6, 2, spec));
        at_step(&mut running, 3);
        thread::sleep(Duration::from_micros(700 * at));
        let killed = Role::Worker { rank };
        running.task(killed).signal("KILL");
        finish(&mut running, &[killed], 1500);
        let logs = running.logs();
        // First three on each node, then two on the node of the killed worker.
        assert_eq!(logs.matches(&met(3)).count(), 9, "{logs}");
        assert_eq!(logs.matches(&met(2)).count(), 2, "{logs}");
    }
}

/// 2, 6 and 3 workers on 2, 3 and 2 shards: workers set up aggregation again in each view.
#[test]
fn aggregation_follows_joining_and_leaving_workers() {
    let rig = on_nodes(2);
    let first = RigLaunch::new(1, 2, 2, aggregated(2500, &json!({}), &json!({})));
    let mut running = rig.start(&first);
    at_step(&mut running, 20);
    let grown = RigLaunch {
        revision: 2,
        workers: 6,
        ps_shards: 3,
        ..first.clone()
    };
    rig.resize(&mut running, &grown, &[0, 1], &[0, 1]);
    running
        .chief()
        .wait_for_log("6 workers, 3 PS shards; its first step");
    running.chief().wait_for_log(&met(3));
    let shrunk = RigLaunch {
        revision: 3,
        workers: 3,
        ..first
    };
    rig.resize(&mut running, &shrunk, &[0, 4, 2], &[2, 1]);
    running
        .chief()
        .wait_for_log("3 workers, 2 PS shards; its first step");
    finish(&mut running, &[], 2500);
    let logs = running.logs();
    // Ranks 0, 2 and 4 were on one node, and all remain.
    assert_eq!(logs.matches(&met(3)).count(), 3 + 3 + 3, "{logs}");
    assert!(running.chief().log().contains("the same to the bit"));
}

/// The promoted replica of a lost shard has the same sums: the model equals that of an undisturbed
/// run.
#[test]
fn lost_shard_loses_no_sum() {
    let steps = 700;
    let spec = aggregated(steps, &json!({}), &json!({ "shard_replicas": 1 }));
    for killed in 0..3 {
        let rig = on_nodes(1);
        let launch = RigLaunch::new(1, 3, 3, spec.clone());
        let mut running = rig.start(&launch);
        at_step(&mut running, 3);
        let killed = Role::PsShard { index: killed };
        running.task(killed).signal("KILL");
        running.chief().wait_for_log("continues from step");
        finish(&mut running, &[killed], steps);
        let mut undisturbed = launch.clone();
        undisturbed.spec.exchange.shard_replicas = 0;
        let (expected, ..) = trained(&on_nodes(1), &undisturbed);
        assert_eq!(rig.final_sha256(1), expected, "{}", running.logs());
    }
}

/// After a stop all workers keep their work; the resumed job has the bits of an uninterrupted one.
#[test]
fn resumed_job_with_aggregation_has_the_same_bits() {
    let rig = on_nodes(1);
    let launch = RigLaunch::new(1, 3, 2, aggregated(600, &json!({}), &json!({})));
    let mut running = rig.start(&launch);
    at_step(&mut running, 5);
    running.terminate();
    let codes = running.wait();
    let events = running.chief().events();
    let interrupted = events.iter().find_map(interrupted);
    assert!(interrupted.is_some(), "{codes:?}\n{}", running.logs());
    let again = RigLaunch {
        revision: 2,
        started: 2,
        ..launch.clone()
    };
    let again = again.resuming(interrupted.unwrap());
    let (continued, ..) = trained(&rig, &again);
    assert_eq!(continued, trained(&on_nodes(1), &launch).0);
}
