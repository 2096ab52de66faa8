//! Shards with replicas as real processes: one is killed during training, and no task restarts.

#![expect(clippy::disallowed_methods, reason = "tests wait with a time limit")]

use crate::rig::reports::{last_accuracy, samples};
use crate::rig::{Revision, Rig, RigLaunch, spec};
use muster_model::assignment::TaskReport;
use muster_model::spec::{JobSpec, Range};
use muster_model::task::Role;
use serde_json::json;
use std::thread;
use std::time::{Duration, Instant};

/// More than a second, so that resizes and kills happen during training, also on a busy machine.
const STEPS: u64 = 1500;
/// Longer than any replica holder may be silent.
const LONGEST_SILENCE: Duration = Duration::from_secs(12);

fn replicated(consistency: serde_json::Value, ps_shards: u32) -> JobSpec {
    let spec = spec(json!({
        "exchange": { "consistency": consistency, "shard_replicas": 1 },
        "stop": { "steps": STEPS },
        "scale": { "workers": { "min": 1, "max": 2 }, "ps_shards": { "min": 2, "max": ps_shards } }
    }));
    assert_eq!(spec.validate(), Ok(()));
    spec
}

/// Waits until steps have been reported.
fn under_way(revision: &mut Revision) {
    revision.chief().wait_for("progress", |event| {
        samples(std::slice::from_ref(event)).pop()
    });
}

/// Sends SIGKILL after training has made progress.
fn kill_shard(revision: &mut Revision, index: u32) {
    under_way(revision);
    let shard = revision.task(Role::PsShard { index });
    shard.child.kill().unwrap();
    shard.child.wait().unwrap();
    revision.chief().wait_for_log("continues from step");
}

/// All tasks except the killed shard, which has this index among the tasks, exit with 0, and the
/// coordinator at the last step.
fn finish(revision: &mut Revision, killed: usize, ps_shards: usize) {
    let codes = revision.wait();
    for (at, &code) in codes.iter().enumerate() {
        let expected = if at == killed { -1 } else { 0 };
        assert_eq!(
            code,
            expected,
            "task {at} of {codes:?}\n{}",
            revision.logs()
        );
    }
    let events = revision.chief().events();
    assert!(
        matches!(
            events.last(),
            Some(TaskReport::Finished { step: STEPS, .. })
        ),
        "{events:?}"
    );
    // The job's history names the promotion once.
    let said = format!(
        "PS shard {killed} is lost; PS shard {} continues as it from its copy",
        (killed + 1) % ps_shards
    );
    let told = notes(&events)
        .filter(|note| note.starts_with(&said))
        .count();
    assert_eq!(told, 1, "`{said}` in {events:?}");
}

fn notes(events: &[TaskReport]) -> impl Iterator<Item = &String> {
    events.iter().filter_map(|event| match event {
        TaskReport::Note { message } => Some(message),
        _ => None,
    })
}

fn undisturbed(ps_shards: u32) -> String {
    let rig = Rig::new();
    let mut launch = RigLaunch::new(
        1,
        2,
        ps_shards,
        replicated(json!({ "kind": "bsp" }), ps_shards),
    );
    launch.spec.exchange.shard_replicas = 0;
    rig.start(&launch).succeed();
    rig.final_sha256(1)
}

/// The replica has every step: with two and three shards, and for any lost shard, the model equals
/// that of an undisturbed run.
#[test]
fn lost_shard_loses_no_step() {
    for (ps_shards, killed) in [(2, 0), (3, 1), (3, 2)] {
        let rig = Rig::new();
        let spec = replicated(json!({ "kind": "bsp" }), ps_shards);
        let mut revision = rig.start(&RigLaunch::new(1, 2, ps_shards, spec));
        kill_shard(&mut revision, killed);
        finish(&mut revision, killed as usize, ps_shards as usize);
        let same = rig.final_sha256(1) == undisturbed(ps_shards);
        assert!(
            same,
            "{ps_shards} shards without {killed}\n{}",
            revision.logs()
        );
    }
}

/// The task set follows: first without the lost shard, then with another in its place. Its pieces
/// move there from the replica.
#[test]
fn replacement_shard_takes_over_from_the_replica() {
    let rig = Rig::new();
    let spec = replicated(json!({ "kind": "bsp" }), 3);
    let launch = RigLaunch::new(1, 2, 3, spec);
    let mut revision = rig.start(&launch);
    kill_shard(&mut revision, 1);
    let fewer = RigLaunch {
        revision: 2,
        ps_shards: 2,
        ..launch.clone()
    };
    rig.resize(&mut revision, &fewer, &[0, 1], &[0, 2]);
    revision
        .chief()
        .wait_for_log("2 workers, 2 PS shards; its first step");
    let again = RigLaunch {
        revision: 3,
        ..launch
    };
    rig.resize(&mut revision, &again, &[0, 1], &[0, 1]);
    revision
        .chief()
        .wait_for_log("2 workers, 3 PS shards; its first step");
    finish(&mut revision, 1, 3);
    let chief = revision.chief().log();
    assert!(chief.contains("the same to the bit"), "{chief}");
    // The promoted replica ran in the process of the next shard until all its pieces had moved.
    let host = revision.task(Role::PsShard { index: 2 }).log();
    assert!(host.contains("does not live here any more"), "{host}");
    assert_eq!(rig.final_sha256(1), undisturbed(3), "{}", revision.logs());
}

/// A job may begin with one shard, which has no replica; with three, and with the two that remain,
/// each has one.
#[test]
fn shards_that_join_a_single_one_are_replicated() {
    let rig = Rig::new();
    let mut spec = replicated(json!({ "kind": "bsp" }), 3);
    spec.scale.ps_shards = Some(Range { min: 1, max: 3 });
    assert_eq!(spec.validate(), Ok(()));
    let launch = RigLaunch::new(1, 2, 1, spec);
    let mut revision = rig.start(&launch);
    let grown = RigLaunch {
        revision: 2,
        ps_shards: 3,
        ..launch.clone()
    };
    let shrunk = RigLaunch {
        revision: 3,
        ps_shards: 2,
        ..launch
    };
    under_way(&mut revision);
    rig.resize(&mut revision, &grown, &[0, 1], &[0]);
    revision
        .chief()
        .wait_for_log("2 workers, 3 PS shards; its first step");
    rig.resize(&mut revision, &shrunk, &[0, 1], &[0, 2]);
    revision
        .chief()
        .wait_for_log("2 workers, 2 PS shards; its first step");
    kill_shard(&mut revision, 0);
    let codes = revision.wait();
    let ended: Vec<i32> = codes.into_iter().filter(|&code| code != 0).collect();
    assert_eq!(ended, [-1], "{}", revision.logs());
    let events = revision.chief().events();
    let said = "continues as it from its copy";
    assert!(notes(&events).any(|note| note.contains(said)), "{events:?}");
    assert_eq!(rig.final_sha256(1), undisturbed(3), "{}", revision.logs());
}

#[test]
fn ssp_workers_continue_with_the_promoted_replica() {
    let rig = Rig::new();
    let spec = replicated(json!({ "kind": "ssp", "staleness": 2 }), 3);
    let mut revision = rig.start(&RigLaunch::new(1, 2, 3, spec));
    kill_shard(&mut revision, 2);
    finish(&mut revision, 2, 3);
    let events = revision.chief().events();
    let accuracy = last_accuracy(&events);
    assert!(accuracy > 0.8, "{accuracy}");
}

/// A stopped replica holder is dropped and reported in the job's history. After it continues it is
/// the replica holder again; the model is the same.
#[test]
fn stopped_replica_holder_is_reported() {
    let rig = Rig::new();
    let spec = replicated(json!({ "kind": "bsp" }), 2);
    let mut revision = rig.start(&RigLaunch::new(1, 2, 2, spec));
    under_way(&mut revision);
    let first = Role::PsShard { index: 0 };
    let said = "PS shard 1 keeps no copy of PS shard 0 any more";
    // If it is stopped between the replication and the answer to the workers, it blocks them from
    // the next step on, and nothing else is replicated.
    let is_given_up = (0..5).any(|_| {
        revision.task(Role::PsShard { index: 1 }).signal("STOP");
        let began = Instant::now();
        let mut told = false;
        while !told && began.elapsed() < LONGEST_SILENCE {
            told = notes(&revision.task(first).events()).any(|note| note.starts_with(said));
            thread::sleep(Duration::from_millis(20));
        }
        revision.task(Role::PsShard { index: 1 }).signal("CONT");
        told
    });
    assert!(is_given_up, "{}", revision.logs());
    revision.succeed();
    assert_eq!(rig.final_sha256(1), undisturbed(2), "{}", revision.logs());
}
