//! Jobs of workers without shards: steps in priority order compared with steps as one sum, with
//! real task processes.

use crate::rig::reports::{interrupted, samples};
use crate::rig::workers::Crew;
use crate::rig::{self, Rig, RigLaunch, RigTask, spec};
use muster_model::assignment::TaskReport;
use serde_json::{Value, json};
use std::thread;
use std::time::Duration;

/// Document of workers without shards.
fn large(more: &Value) -> Value {
    let mut document = rig::large(more);
    document["exchange"]["topology"] = json!("all_reduce");
    document
}

const BY_NEED: &str = "gradients go by need";

fn trained(workers: u32, tcp: bool, more: &Value) -> (String, Option<f64>) {
    let mut rig = Rig::new();
    rig.tcp = tcp;
    let mut crew = Crew::start(&rig, &RigLaunch::new(1, workers, 0, spec(large(more))));
    crew.succeed();
    crew.agree();
    let is_whole = more.pointer("/engine/clip_norm").is_some();
    assert_eq!(crew.logs().contains(BY_NEED), !is_whole, "{}", crew.logs());
    let last = samples(&crew.chief().events()).pop().unwrap();
    (rig.final_sha256(1), last.noise_scale)
}

/// A clip norm that no gradient reaches changes no bit, but requires the whole gradient.
/// Evaluations and checkpoints fall between a step and the next one, which has already begun. With
/// three or more workers over TCP, the order of additions depends on how gradients are cut.
#[test]
fn priority_order_has_the_bits_of_a_whole_sum() {
    let whole = json!({ "engine": { "clip_norm": 1e9 } });
    for (workers, tcp) in [(1, false), (2, false), (2, true), (3, false), (4, false)] {
        let by_need = trained(workers, tcp, &json!({}));
        assert_eq!(by_need, trained(workers, tcp, &whole), "{workers} workers");
        assert_eq!(by_need.1.is_some(), workers > 1, "noise is measured");
    }
    // Several passes per step: only the first one can begin early.
    let by_need = trained(2, false, &json!({ "engine": { "accumulate": 3 } }));
    let both = json!({ "engine": { "accumulate": 3, "clip_norm": 1e9 } });
    assert_eq!(by_need, trained(2, false, &both));
}

#[test]
fn runs_over_links_repeat_bit_for_bit() {
    let ring = json!({ "exchange": { "algorithm": "ring" } });
    for workers in [3, 4] {
        assert_eq!(trained(workers, true, &ring), trained(workers, true, &ring));
    }
}

/// At any moment of a step: the remaining workers have the same bits, and no task restarts.
#[test]
fn workers_killed_at_any_moment_leave_equal_replicas() {
    let more = json!({
        "stop": { "steps": 160 }, "checkpoint": { "every_steps": 1000 }, "evaluate": { "every_steps": 50 },
    });
    for (turn, tcp) in [false, true, true].into_iter().enumerate() {
        let mut rig = Rig::new();
        rig.tcp = tcp;
        let mut crew = Crew::start(&rig, &RigLaunch::new(1, 4, 0, spec(large(&more))));
        for (victim, step) in [(2, 3), (1, 40), (3, 80)] {
            crew.wait_for_step(step);
            thread::sleep(Duration::from_micros(
                1_700 * turn as u64 + 900 * victim as u64,
            ));
            crew.tasks[victim].signal("KILL");
        }
        assert_eq!(crew.wait(), [0, -1, -1, -1], "{}", crew.logs());
        crew.agree();
        let events = crew.chief().events();
        let gone = events
            .iter()
            .filter(|report| matches!(report, TaskReport::PeerGone { .. }));
        assert_eq!(gone.count(), 3, "{events:?}");
        assert!(
            events
                .iter()
                .any(|report| matches!(report, TaskReport::Finished { step: 160, .. }))
        );
    }
}

/// Waits for the resize to `count` workers. Returns its first step.
fn step_of_resize(chief: &RigTask, count: u32) -> u64 {
    chief.wait_for("a resize", |report| match report {
        TaskReport::Resized { step, workers, .. } if *workers == count => Some(*step),
        _ => None,
    })
}

#[test]
fn two_workers_become_four_and_two_again() {
    for tcp in [false, true] {
        let mut rig = Rig::new();
        rig.tcp = tcp;
        let more = json!({ "stop": { "steps": 100_000 }, "checkpoint": { "every_steps": 1000 } });
        let mut crew = Crew::start(&rig, &RigLaunch::new(1, 2, 0, spec(large(&more))));
        crew.wait_for_step(10);
        crew.grow(2, 2);
        step_of_resize(crew.chief(), 4);
        crew.shrink(3, &[1, 3]);
        let step = step_of_resize(crew.chief(), 2);
        // Until both have continued and reported it.
        crew.wait_for_step(step + 2);
        for task in &mut crew.tasks {
            task.signal("TERM");
        }
        crew.succeed();
        crew.agree();
        let prints = crew.fingerprints();
        assert!(prints.len() >= 2 + 4 + 2, "{prints:?}");
    }
}

/// A job that is stopped in order continues at its step; all completed steps count.
#[test]
fn stopped_job_continues_at_a_whole_step() {
    let rig = Rig::new();
    let long = json!({ "stop": { "steps": 100_000 }, "checkpoint": { "every_steps": 1000 } });
    let mut crew = Crew::start(&rig, &RigLaunch::new(1, 3, 0, spec(large(&long))));
    crew.wait_for_step(20);
    for task in &mut crew.tasks {
        task.signal("TERM");
    }
    crew.succeed();
    let step = crew.chief().wait_for("a step", interrupted);
    drop(crew);
    let more = json!({ "stop": { "steps": step + 10 } });
    let launch = RigLaunch::new(2, 3, 0, spec(large(&more))).resuming(step);
    let mut crew = Crew::start(&rig, &launch);
    crew.succeed();
    crew.agree();
    let resumed = rig.final_sha256(2);
    let undisturbed = trained(3, false, &more).0;
    assert_eq!(resumed, undisturbed, "after {step} steps");
}
