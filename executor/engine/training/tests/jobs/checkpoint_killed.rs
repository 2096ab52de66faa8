//! Real processes that are killed while they write checkpoints: the newest complete one is found.

use crate::rig::reports::written;
use crate::rig::{Rig, RigLaunch, RigTask, spec};
use muster_model::assignment::TaskReport;
use serde_json::json;
use std::thread;
use std::time::Duration;

const STEPS: u64 = 600;

fn newest_written(chief: &RigTask) -> Option<u64> {
    chief.events().iter().filter_map(written).max()
}

/// The writer is never idle, so nearly every kill interrupts it: within a part, within the
/// manifest, before or after the rename.
#[test]
fn job_killed_during_writes_resumes_with_the_same_bits() {
    let document = json!({
        "stop": { "steps": STEPS },
        "checkpoint": { "every_steps": 1, "every_minutes": null, "keep": 2, "keep_every_steps": 100 },
    });
    let straight = Rig::new();
    straight
        .start(&RigLaunch::new(1, 1, 1, spec(document.clone())))
        .succeed();

    let rig = Rig::new();
    let mut known = None;
    let mut revision = 0;
    for wait_us in [1_000, 3_700, 9_300, 17_100, 23_900, 41_300] {
        revision += 1;
        let mut launch = RigLaunch::new(revision, 1, 1, spec(document.clone()));
        launch.resume_step = known;
        let mut tasks = rig.start(&launch);
        tasks
            .chief()
            .wait_for("a new checkpoint", |event| match event {
                TaskReport::CheckpointWritten { checkpoint } if Some(checkpoint.step) > known => {
                    Some(())
                }
                TaskReport::Finished { .. } => Some(()),
                _ => None,
            });
        thread::sleep(Duration::from_micros(wait_us));
        tasks.kill_all();
        tasks.wait();
        // A checkpoint that the previous revision had no time to report is reported before the
        // start, which a kill may prevent.
        let ready = tasks
            .chief()
            .events()
            .into_iter()
            .find_map(|event| match event {
                TaskReport::Ready { from_step } => Some(from_step),
                _ => None,
            });
        assert!(
            ready.is_none() || ready >= known,
            "revision {revision} began at step {ready:?} though {known:?} was safe\n{}",
            tasks.logs()
        );
        known = known.max(newest_written(tasks.chief()));
    }
    revision += 1;
    let mut launch = RigLaunch::new(revision, 1, 1, spec(document));
    launch.resume_step = known;
    rig.start(&launch).succeed();
    assert_eq!(straight.final_sha256(1), rig.final_sha256(revision));
    let left: Vec<String> = std::fs::read_dir(rig.job_folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with(".tmp-") || name.starts_with("damaged-"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
