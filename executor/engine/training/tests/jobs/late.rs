//! A worker that joins after the set of shards has changed, or never joins; the others are running
//! and wait for it.

use crate::rig::{Rig, RigLaunch, spec};
use muster_model::assignment::TaskReport;
use muster_model::task::Role;
use serde_json::{Value, json};

/// One of three workers dies before it connects, and the task set follows: no task restarts.
fn goes_on_without(consistency: Value) {
    let rig = Rig::new();
    let spec = spec(json!({
        "exchange": { "consistency": consistency },
        "stop": { "steps": 40 },
        "scale": { "workers": { "min": 1, "max": 3 }, "ps_shards": { "min": 1, "max": 2 } }
    }));
    let launch = RigLaunch::new(1, 3, 2, spec);
    let mut revision = rig.start_untold(&launch);
    let lost = revision.task(Role::Worker { rank: 2 });
    lost.child.kill().unwrap();
    lost.child.wait().unwrap();
    revision.tell();
    // The others are running and wait.
    revision.chief().wait_for_log("training from step 0");
    let without = RigLaunch {
        revision: 2,
        workers: 2,
        ..launch
    };
    rig.resize(&mut revision, &without, &[0, 1], &[0, 1]);
    let codes = revision.wait();
    assert_eq!(codes, [0, 0, 0, 0, -1], "{}", revision.logs());
    let events = revision.chief().events();
    // Either by its own poll of the task set, or after a shard has asked about the missing worker.
    let resized = events
        .iter()
        .any(|event| matches!(event, TaskReport::Resized { workers: 2, .. }));
    assert!(resized, "{events:?}");
    assert!(
        matches!(events.last(), Some(TaskReport::Finished { step: 40, .. })),
        "{events:?}"
    );
}

#[test]
fn bsp_continues_without_a_worker_that_never_connected() {
    goes_on_without(json!({ "kind": "bsp" }));
}

#[test]
fn ssp_continues_without_a_worker_that_never_connected() {
    goes_on_without(json!({ "kind": "ssp", "staleness": 2 }));
}

/// SHA-256 of the final model. The second worker receives its first task set when there are `then`
/// shards instead of `first`.
fn trains_with_one_who_is_late(consistency: &Value, first: u32, then: u32) -> String {
    let rig = Rig::new();
    let spec = spec(json!({
        "exchange": { "consistency": consistency },
        "stop": { "steps": 40 },
        "scale": { "workers": { "min": 2, "max": 2 }, "ps_shards": { "min": 1, "max": 3 } }
    }));
    let launch = RigLaunch::new(1, 2, first, spec);
    let mut revision = rig.start_untold(&launch);
    let late = Role::Worker { rank: 1 };
    for task in revision.tasks.iter().filter(|task| task.role != late) {
        task.tell(&revision.peers);
    }
    revision.chief().wait_for_log("training from step 0");
    let resized = RigLaunch {
        revision: 2,
        ps_shards: then,
        ..launch
    };
    let stay: Vec<usize> = (0..first.min(then) as usize).collect();
    rig.resize(&mut revision, &resized, &[0, 1], &stay);
    revision.succeed();
    let events = revision.chief().events();
    let changed = events
        .iter()
        .any(|event| matches!(event, TaskReport::Resized { ps_shards, .. } if *ps_shards == then));
    assert!(changed, "{events:?}");
    rig.final_sha256(1)
}

#[test]
fn late_worker_joins_resized_shards() {
    let bsp = json!({ "kind": "bsp" });
    let rig = Rig::new();
    let spec = spec(json!({ "exchange": { "consistency": bsp }, "stop": { "steps": 40 } }));
    rig.start(&RigLaunch::new(1, 2, 1, spec)).succeed();
    let undisturbed = rig.final_sha256(1);
    for (first, then) in [(1, 3), (3, 1)] {
        let model = trains_with_one_who_is_late(&bsp, first, then);
        assert_eq!(model, undisturbed, "{first} to {then}");
    }
}

#[test]
fn late_worker_joins_resized_shards_under_ssp() {
    let ssp = json!({ "kind": "ssp", "staleness": 2 });
    trains_with_one_who_is_late(&ssp, 1, 3);
    trains_with_one_who_is_late(&ssp, 3, 1);
}
