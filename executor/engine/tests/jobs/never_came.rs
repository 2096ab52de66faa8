//! A worker that dies before it ever reached the shards: the others do not wait for it once the task set is without it.

use crate::rig::{Launch, Rig, spec};
use muster_model::assignment::TaskReport;
use muster_model::task::Role;
use serde_json::json;

/// Three workers are to train, one dies before it connects, the task set follows: nobody starts anew.
fn goes_on_without(consistency: serde_json::Value) {
    let rig = Rig::new();
    let spec = spec(json!({
        "exchange": { "consistency": consistency },
        "stop": { "steps": 40 },
        "scale": { "workers": { "min": 1, "max": 3 }, "ps_shards": { "min": 1, "max": 2 } }
    }));
    let launch = Launch::new(1, 3, 2, spec);
    let mut revision = rig.start_untold(&launch);
    let lost = revision.task(Role::Worker { rank: 2 });
    lost.child.kill().unwrap();
    lost.child.wait().unwrap();
    revision.tell();
    // The others are under way, and wait.
    revision.chief().wait_for_log("training from step 0");
    let without = Launch {
        revision: 2,
        workers: 2,
        ..launch
    };
    rig.resize(&mut revision, &without, &[0, 1], &[0, 1]);
    let codes = revision.wait();
    assert_eq!(codes, [0, 0, 0, 0, -1], "{}", revision.logs());
    let events = revision.chief().events();
    let gone = events
        .iter()
        .any(|event| matches!(event, TaskReport::PeerGone { step, .. } if *step < 40));
    assert!(gone, "{events:?}");
    assert!(
        matches!(events.last(), Some(TaskReport::Finished { step: 40, .. })),
        "{events:?}"
    );
}

#[test]
fn bsp_goes_on_without_a_worker_that_never_came() {
    goes_on_without(json!({ "kind": "bsp" }));
}

#[test]
fn ssp_goes_on_without_a_worker_that_never_came() {
    goes_on_without(json!({ "kind": "ssp", "staleness": 2 }));
}
