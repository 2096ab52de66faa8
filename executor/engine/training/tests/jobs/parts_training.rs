//! Jobs whose steps are sent in parts, compared with the same jobs whose steps are sent as a whole;
//! real task processes.

use crate::rig::reports::samples;
use crate::rig::{Rig, RigLaunch, large, spec};
use muster_model::assignment::TaskReport;
use muster_model::task::Role;
use serde_json::{Value, json};

fn trained(workers: u32, ps_shards: u32, more: &Value) -> (String, f64) {
    // A folder of its own: another start of the same job would find the checkpoints of this one.
    let rig = Rig::new();
    let launch = RigLaunch::new(1, workers, ps_shards, spec(large(more)));
    let mut running = rig.start(&launch);
    running.succeed();
    let last = samples(&running.chief().events()).pop().unwrap();
    (rig.final_sha256(1), last.loss)
}

/// A clip norm that no gradient reaches changes no bit, but such steps are sent as a whole.
/// Evaluations and checkpoints fall between a step and the next one, which has already begun.
#[test]
fn steps_in_parts_have_the_bits_of_whole_steps() {
    let at_once = json!({ "engine": { "clip_norm": 1e9 } });
    for (workers, ps_shards) in [(1, 1), (2, 2)] {
        let (parts, loss) = trained(workers, ps_shards, &json!({}));
        let (whole, _) = trained(workers, ps_shards, &at_once);
        assert_eq!(parts, whole, "{workers} workers, {ps_shards} shards");
        assert!(loss.is_finite());
    }
    // Several passes per step: only the first one can begin early.
    let (parts, _) = trained(2, 1, &json!({ "engine": { "accumulate": 3 } }));
    let both = json!({ "engine": { "accumulate": 3, "clip_norm": 1e9 } });
    assert_eq!(parts, trained(2, 1, &both).0);
}

/// A worker is killed during training: the others continue, and no task restarts.
#[test]
fn others_continue_without_a_killed_worker() {
    let rig = Rig::new();
    let more = json!({ "stop": { "steps": 120 }, "checkpoint": { "every_steps": 1000 } });
    let launch = RigLaunch::new(1, 3, 2, spec(large(&more)));
    let mut running = rig.start(&launch);
    running.chief().wait_for("progress", |report| {
        matches!(report, TaskReport::Progress { sample } if sample.step >= 3).then_some(())
    });
    let killed = running.task(Role::Worker { rank: 2 });
    let gone = killed.id;
    killed.signal("KILL");
    let codes = running.wait();
    assert_eq!(codes, [0, 0, 0, 0, -1], "{}", running.logs());
    let events = running.chief().events();
    let is_reported = events
        .iter()
        .any(|report| matches!(report, TaskReport::PeerGone { task_id, .. } if *task_id == gone));
    assert!(is_reported, "{events:?}");
    let is_resized = events
        .iter()
        .any(|report| matches!(report, TaskReport::Resized { workers: 2, .. }));
    assert!(is_resized, "{events:?}");
}
