//! Real processes whose job is resized in place: remaining tasks do not restart.

#![expect(clippy::disallowed_methods, reason = "tests wait with a time limit")]

use crate::rig::reports::{interrupted, last_accuracy, samples};
use crate::rig::{PATIENCE, Revision, Rig, RigLaunch, spec};
use muster_model::assignment::{TaskReport, exit_code};
use muster_model::progress::Sample;
use muster_model::task::Role;
use serde_json::json;
use std::thread;
use std::time::{Duration, Instant};

fn at_step(revision: &mut Revision, step: u64) {
    revision.chief().wait_for("progress", |event| {
        samples(std::slice::from_ref(event))
            .pop()
            .filter(|sample| sample.step >= step)
    });
}

/// Step, workers, shards and pause of every resize.
fn resizes(events: &[TaskReport]) -> Vec<(u64, u32, u32, u64)> {
    let resizes = events.iter().filter_map(|event| match event {
        TaskReport::Resized {
            step,
            workers,
            ps_shards,
            pause_ms,
        } => Some((*step, *workers, *ps_shards, *pause_ms)),
        _ => None,
    });
    resizes.collect()
}

/// Resize number `number`, counted from 1, after it is reported.
fn resized(revision: &mut Revision, number: usize) -> (u64, u32, u32, u64) {
    let began = Instant::now();
    loop {
        if let Some(found) = resizes(&revision.chief().events()).get(number - 1) {
            return *found;
        }
        assert!(
            began.elapsed() < PATIENCE,
            "{:?}\n{}",
            revision.chief().events(),
            revision.logs()
        );
        thread::sleep(Duration::from_millis(2));
    }
}

fn longest_pause_in_steps(events: &[TaskReport]) -> f64 {
    let steps: Vec<Sample> = samples(events);
    let usual_ms =
        1e3 / steps.iter().map(|sample| sample.steps_per_s).sum::<f64>() * steps.len() as f64;
    let longest = resizes(events)
        .into_iter()
        .map(|resize| resize.3)
        .max()
        .unwrap_or(0);
    longest as f64 / usual_ms
}

/// 2, 6 and 3 workers on 1, 3 and 2 shards in one run. The first shard is among those that leave.
#[test]
fn run_through_three_sizes_keeps_processes_and_accuracy() {
    // Under SSP runs differ, and one test image is half a percentage point.
    for (consistency, tolerance) in [
        (json!({ "kind": "bsp" }), 0.005),
        (json!({ "kind": "ssp", "staleness": 2 }), 0.03),
        (
            json!({ "kind": "ssp", "staleness": 2, "eager": true }),
            0.03,
        ),
    ] {
        let document = spec(json!({
            "stop": { "epochs": 150 },
            "exchange": { "consistency": consistency },
            "checkpoint": { "every_steps": 400 },
        }));
        let undisturbed = Rig::new();
        let mut whole = undisturbed.start(&RigLaunch::new(1, 2, 1, document.clone()));
        whole.succeed();

        let rig = Rig::new();
        let first = RigLaunch::new(1, 2, 1, document);
        let mut revision = rig.start(&first);
        at_step(&mut revision, 20);
        let grown = RigLaunch {
            revision: 2,
            workers: 6,
            ps_shards: 3,
            ..first.clone()
        };
        rig.resize(&mut revision, &grown, &[0, 1], &[0]);
        let (step, workers, ps_shards, _) = resized(&mut revision, 1);
        assert_eq!((workers, ps_shards), (6, 3));
        at_step(&mut revision, step + 20);
        let shrunk = RigLaunch {
            revision: 3,
            workers: 3,
            ps_shards: 2,
            ..first
        };
        rig.resize(&mut revision, &shrunk, &[0, 4, 2], &[2, 1]);
        let (_, workers, ps_shards, _) = resized(&mut revision, 2);
        assert_eq!((workers, ps_shards), (3, 2));
        // All tasks exit with 0: those that left, and those that stayed to the end.
        revision.succeed();
        let events = revision.chief().events();
        let starts = events
            .iter()
            .filter(|event| matches!(event, TaskReport::Ready { .. }))
            .count();
        assert_eq!(starts, 1, "the survivors were never started again");
        let sizes: Vec<(u32, u32)> = samples(&events)
            .iter()
            .map(|sample| (sample.workers, sample.ps_shards))
            .collect();
        assert!(
            [(2, 1), (6, 3), (3, 2)]
                .iter()
                .all(|size| sizes.contains(size)),
            "{sizes:?}"
        );
        let [of_whole, of_resized] =
            [&mut whole, &mut revision].map(|revision| last_accuracy(&revision.chief().events()));
        assert!(
            (of_whole - of_resized).abs() <= tolerance,
            "{of_whole} {of_resized}"
        );
        assert!(
            revision.chief().log().contains("the same to the bit"),
            "{}",
            revision.chief().log()
        );
        for line in revision.chief().log().lines() {
            if line.contains("resized") || line.contains("moved") {
                println!("{line}");
            }
        }
        println!(
            "{consistency}: accuracy {of_whole} undisturbed, {of_resized} resized; the longest pause is {:.2} steps",
            longest_pause_in_steps(&events)
        );
    }
}

/// SIGKILL during a step: the others continue without a restart, and the coordinator reports the
/// lost worker.
#[test]
fn job_continues_without_a_killed_worker() {
    for consistency in [json!({ "kind": "bsp" }), json!({ "kind": "asp" })] {
        let rig = Rig::new();
        let document =
            json!({ "stop": { "steps": 1_000_000 }, "exchange": { "consistency": consistency } });
        let mut revision = rig.start(&RigLaunch::new(1, 4, 2, spec(document)));
        at_step(&mut revision, 10);
        for (count, rank) in [(1, 2), (2, 1)] {
            let role = Role::Worker { rank };
            // Under ASP no task waits for workers that start late.
            revision.task(role).wait_for_log("training from step");
            let id = revision.task(role).id;
            revision.task(role).signal("KILL");
            let step = revision
                .chief()
                .wait_for("who is gone", |event| match event {
                    TaskReport::PeerGone { task_id, step } if *task_id == id => Some(*step),
                    _ => None,
                });
            let (resized_at, workers, ps_shards, _) = resized(&mut revision, count);
            assert_eq!((workers, ps_shards), (4 - count as u32, 2));
            assert_eq!(resized_at, step + 1);
            at_step(&mut revision, step + 10);
        }
        revision.terminate();
        let codes = revision.wait();
        assert_eq!(
            codes,
            [
                exit_code::DONE,
                exit_code::DONE,
                exit_code::DONE,
                -1,
                -1,
                exit_code::DONE
            ],
            "{}",
            revision.logs()
        );
        let step = revision.chief().wait_for("its stop", interrupted);
        assert_eq!(rig.checkpoints(), [format!("step-{step:010}-r1")]);
    }
}

/// The nodes of a job learn of a resize one after the other: a leaving worker may be stopped before
/// the coordinator knows why.
#[test]
fn worker_stopped_before_the_coordinator_knows_ends_nothing() {
    let rig = Rig::new();
    let first = RigLaunch::new(1, 3, 1, spec(json!({ "stop": { "steps": 1_000_000 } })));
    let mut revision = rig.start(&first);
    at_step(&mut revision, 20);
    let leaver = Role::Worker { rank: 2 };
    let mut peers = revision.peers.clone();
    peers.revision = 2;
    peers.workers.truncate(2);
    revision.task(leaver).tell(&peers);
    revision.task(leaver).signal("TERM");
    // Long enough for many steps: the job trains with all three workers.
    thread::sleep(Duration::from_millis(300));
    assert_eq!(resizes(&revision.chief().events()), []);
    let shrunk = RigLaunch {
        revision: 2,
        workers: 2,
        ..first
    };
    rig.resize(&mut revision, &shrunk, &[0, 1], &[0]);
    let (_, workers, ps_shards, _) = resized(&mut revision, 1);
    assert_eq!((workers, ps_shards), (2, 1));
    revision.terminate();
    assert_eq!(revision.wait(), [exit_code::DONE; 4]);
    let events = revision.chief().events();
    let is_lost = events
        .iter()
        .any(|event| matches!(event, TaskReport::PeerGone { .. }));
    assert!(!is_lost, "it left in order");
}

/// The job was shrunk again before the coordinator had polled: no worker is connected to the new
/// shard, so no worker can end it.
#[test]
fn removed_shard_without_a_connection_ends() {
    let rig = Rig::new();
    let first = RigLaunch::new(1, 1, 1, spec(json!({ "stop": { "epochs": 60 } })));
    let revision = rig.start(&first);
    let grown = RigLaunch {
        revision: 2,
        ps_shards: 2,
        ..first
    };
    let mut newcomer = rig.spawn(&grown, Role::PsShard { index: 1 });
    newcomer.wait_for_log("listens on");
    let mut peers = revision.peers.clone();
    newcomer.tell(&peers);
    thread::sleep(Duration::from_millis(300));
    let ended = newcomer.child.try_wait().unwrap();
    assert_eq!(ended, None, "an older task set says nothing of it");
    peers.revision = 3;
    newcomer.tell(&peers);
    assert_eq!(newcomer.wait().code(), Some(exit_code::DONE));
}
