//! Real processes that stand still and go on, again and again: all of them at one step, and to the bit as if they never had.

mod rig;
#[path = "rig/workers.rs"]
mod workers;

use muster_model::assignment::{Peers, TaskReport};
use muster_model::task::Role;
use rig::{Launch, Rig, Task, samples, spec};
use serde_json::{Value, json};
use workers::Crew;

const TURNS: u64 = 4;

fn job(more: Value) -> muster_model::spec::JobSpec {
    let mut document = json!({
        "checkpoint": { "every_minutes": null },
        "stop": { "steps": 400 },
    });
    document
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    spec(document)
}

/// The step before which it stood still in this turn.
fn stood(task: &Task, wanted: u64) -> u64 {
    let pick = |report: &TaskReport| match report {
        TaskReport::Suspended { turn, step } if *turn == wanted => *step,
        _ => None,
    };
    task.wait_for("that it stands still", pick)
}

fn went_on(task: &Task, wanted: u64) {
    let pick = |report: &TaskReport| match report {
        TaskReport::Continued { turn, .. } => (*turn == wanted).then_some(()),
        _ => None,
    };
    task.wait_for("that it goes on", pick);
}

fn at_step(chief: &Task, step: u64) {
    chief.wait_for("progress", |event| {
        samples(std::slice::from_ref(event))
            .pop()
            .filter(|sample| sample.step >= step)
    });
}

/// Sends all through their turns; `tell` writes the number of a turn to every task. The steps at which they stood.
fn turn_about(workers: &[&Task], mut tell: impl FnMut(u64)) -> Vec<u64> {
    at_step(workers[0], 1);
    let mut steps = Vec::new();
    for turn in (1..2 * TURNS).step_by(2) {
        tell(turn);
        let at: Vec<u64> = workers.iter().map(|worker| stood(worker, turn)).collect();
        assert!(
            at.iter().all(|step| *step == at[0]),
            "one step for all: {at:?}"
        );
        assert_eq!(
            samples(&workers[0].events()).last().map(|s| s.step),
            Some(at[0])
        );
        for worker in workers {
            let standing = std::fs::read_to_string(worker.folder.join("standing"));
            assert_eq!(standing.unwrap(), turn.to_string(), "its node sees it too");
        }
        steps.push(at[0]);
        tell(turn + 1);
        for worker in workers {
            went_on(worker, turn + 1);
            assert!(!worker.folder.join("standing").exists());
        }
    }
    steps
}

#[test]
fn workers_on_shards_stand_still_at_one_step_and_go_on_to_the_bit() {
    let rig = Rig::new();
    let launch = |revision| Launch::new(revision, 2, 2, job(json!({})));
    let mut plain = rig.start(&launch(1));
    plain.succeed();
    let mut revision = rig.start(&launch(2));
    let peers = revision.peers.clone();
    let is_worker = |task: &&Task| matches!(task.role, Role::Worker { .. });
    let workers: Vec<&Task> = revision.tasks.iter().filter(is_worker).collect();
    let steps = turn_about(&workers, |turn| {
        let peers = Peers {
            turn,
            ..peers.clone()
        };
        revision.tasks.iter().for_each(|task| task.tell(&peers));
    });
    assert_eq!(steps.len() as u64, TURNS);
    revision.succeed();
    assert_eq!(rig.final_sha256(2), rig.final_sha256(1));
}

#[test]
fn workers_among_themselves_do_the_same() {
    let rig = Rig::new();
    let alone = json!({
        "exchange": { "topology": "all_reduce", "algorithm": "ring" },
        "scale": { "workers": { "min": 2, "max": 2 } }
    });
    let launch = |revision| Launch::new(revision, 2, 0, job(alone.clone()));
    let mut plain = Crew::start(&rig, &launch(1));
    plain.succeed();
    let mut crew = Crew::start(&rig, &launch(2));
    at_step(&crew.tasks()[0], 1);
    for turn in (1..2 * TURNS).step_by(2) {
        crew.turn(turn);
        let at: Vec<u64> = crew.tasks().iter().map(|task| stood(task, turn)).collect();
        assert!(
            at.iter().all(|step| *step == at[0]),
            "one step for all: {at:?}"
        );
        crew.turn(turn + 1);
        crew.tasks().iter().for_each(|task| went_on(task, turn + 1));
    }
    crew.succeed();
    assert_eq!(rig.final_sha256(2), rig.final_sha256(1));
}

/// A round of averaging ends for all at once; until then each is on its own.
#[test]
fn workers_that_average_stand_still_at_the_end_of_a_round() {
    let rig = Rig::new();
    let alone = json!({
        "exchange": { "topology": "all_reduce", "averaging": { "kind": "local_sgd", "every": 7 } },
        "scale": { "workers": { "min": 2, "max": 2 } }
    });
    let mut crew = Crew::start(&rig, &Launch::new(1, 2, 0, job(alone)));
    at_step(&crew.tasks()[0], 1);
    crew.turn(1);
    for task in crew.tasks() {
        assert_eq!(stood(task, 1) % 7, 0);
    }
    crew.turn(2);
    crew.succeed();
}

/// Told to stop while they stand still they leave with a checkpoint, as if they had been at work.
#[test]
fn who_stands_still_leaves_in_order() {
    let rig = Rig::new();
    let mut revision = rig.start(&Launch::new(1, 2, 1, job(json!({}))));
    let peers = Peers {
        turn: 1,
        ..revision.peers.clone()
    };
    at_step(revision.chief(), 1);
    revision.tasks.iter().for_each(|task| task.tell(&peers));
    let step = stood(revision.chief(), 1);
    revision.terminate();
    revision.wait();
    let interrupted = revision.chief().wait_for("its end", rig::interrupted);
    assert_eq!(interrupted, step);
    assert_eq!(rig.checkpoints().len(), 1);
}
