//! Real processes that are suspended and resumed repeatedly: all at the same step, and with the
//! bits of an undisturbed run.

#![expect(clippy::disallowed_methods, reason = "measures turns")]

use crate::rig::reports::{interrupted, samples};
use crate::rig::workers::Crew;
use crate::rig::{Revision, Rig, RigLaunch, RigTask, spec};
use muster_model::assignment::TaskReport;
use muster_model::task::Role;
use serde_json::{Value, json};

const TURNS: u64 = 4;

fn job(more: Value) -> muster_model::spec::JobSpec {
    let mut document = json!({
        "checkpoint": { "every_minutes": null },
        "stop": { "steps": 3000 },
    });
    document
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    spec(document)
}

/// Step before which the task was suspended in this time slice (`turn`).
fn stood(task: &RigTask, wanted: u64) -> u64 {
    task.wait_for("that it stands still", |report| match report {
        TaskReport::Suspended { turn, step } if *turn == wanted => *step,
        _ => None,
    })
}

fn went_on(task: &RigTask, wanted: u64) {
    task.wait_for("that it goes on", |report| match report {
        TaskReport::Continued { turn, .. } => (*turn == wanted).then_some(()),
        _ => None,
    });
}

fn at_step(chief: &RigTask, step: u64) {
    chief.wait_for("progress", |event| {
        samples(std::slice::from_ref(event))
            .pop()
            .filter(|sample| sample.step >= step)
    });
}

/// Sends all workers through their time slices; `tell` writes the number of a slice to every task.
/// Returns the steps at which they were suspended.
fn turn_about(workers: &[&RigTask], mut tell: impl FnMut(u64)) -> Vec<u64> {
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
fn ps_workers_suspend_at_one_step_and_keep_their_bits() {
    let (rig, other) = (Rig::new(), Rig::new());
    let launch = RigLaunch::new(1, 2, 2, job(json!({})));
    other.start(&launch).succeed();
    let mut revision = rig.start(&launch);
    let steps = turn_about(&revision.workers(), |turn| revision.tell_turn(turn));
    assert_eq!(steps.len() as u64, TURNS);
    revision.succeed();
    assert_eq!(rig.final_sha256(1), other.final_sha256(1));
}

#[test]
fn all_reduce_workers_suspend_at_one_step_and_keep_bits() {
    let (rig, other) = (Rig::new(), Rig::new());
    let alone = json!({
        "exchange": { "topology": "all_reduce", "algorithm": "ring" },
        "scale": { "workers": { "min": 2, "max": 2 } }
    });
    let launch = RigLaunch::new(1, 2, 0, job(alone));
    Crew::start(&other, &launch).succeed();
    let mut crew = Crew::start(&rig, &launch);
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
    assert_eq!(rig.final_sha256(1), other.final_sha256(1));
}

/// A round of averaging ends for all workers at the same time; until then each trains alone.
#[test]
fn averaging_workers_suspend_at_the_end_of_a_round() {
    let rig = Rig::new();
    let alone = json!({
        "exchange": { "topology": "all_reduce", "averaging": { "kind": "local_sgd", "every": 7 } },
        "scale": { "workers": { "min": 2, "max": 2 } }
    });
    let mut crew = Crew::start(&rig, &RigLaunch::new(1, 2, 0, job(alone)));
    at_step(&crew.tasks()[0], 1);
    crew.turn(1);
    for task in crew.tasks() {
        assert_eq!(stood(task, 1) % 7, 0);
    }
    crew.turn(2);
    crew.succeed();
}

/// Workers that are stopped while they are suspended leave with a checkpoint, as running ones do.
#[test]
fn suspended_worker_leaves_in_order() {
    let rig = Rig::new();
    let mut revision = rig.start(&RigLaunch::new(1, 2, 1, job(json!({}))));
    at_step(revision.chief(), 1);
    revision.tell_turn(1);
    let step = stood(revision.chief(), 1);
    revision.terminate();
    revision.wait();
    let interrupted = revision.chief().wait_for("its end", interrupted);
    assert_eq!(interrupted, step);
    assert_eq!(rig.checkpoints().len(), 1);
}

/// A new worker that waits while the others are suspended is suspended by its own node, and is
/// admitted when all resume.
#[test]
fn waiting_worker_is_suspended_with_the_others() {
    let rig = Rig::new();
    let endless = json!({ "stop": { "steps": 1_000_000 } });
    let first = RigLaunch::new(1, 1, 1, job(endless));
    let mut revision = rig.start(&first);
    at_step(revision.chief(), 1);
    revision.tell_turn(1);
    stood(revision.chief(), 1);
    let grown = RigLaunch {
        revision: 2,
        workers: 2,
        ..first
    };
    rig.resize(&mut revision, &grown, &[0], &[0]);
    revision.tell_turn(1);
    let newcomer = revision.task(Role::Worker { rank: 1 });
    let step = newcomer.wait_for("that it stands still", |report| match report {
        TaskReport::Suspended { turn: 1, step } => Some(*step),
        _ => None,
    });
    assert_eq!(step, None, "it waits for admission");
    revision.tell_turn(2);
    went_on(revision.chief(), 2);
    went_on(revision.task(Role::Worker { rank: 1 }), 2);
    revision.tell_turn(3);
    let before = stood(revision.chief(), 3);
    assert_eq!(stood(revision.task(Role::Worker { rank: 1 }), 3), before);
    revision.terminate();
    revision.succeed();
}

/// One worker's node skips a slice number: it learns of the third one after the others have resumed
/// in the second.
#[test]
fn skipped_slice_number_does_not_block_the_others() {
    let rig = Rig::new();
    let endless = json!({ "stop": { "steps": 1_000_000 } });
    let mut revision = rig.start(&RigLaunch::new(1, 2, 2, job(endless)));
    at_step(revision.chief(), 1);
    let other = Role::Worker { rank: 1 };
    revision.tell_turn(1);
    assert_eq!(stood(revision.chief(), 1), stood(revision.task(other), 1));
    let second = revision.peers_in(2);
    revision.chief().tell(&second);
    went_on(revision.chief(), 2);
    revision.tell_turn(3);
    assert_eq!(stood(revision.chief(), 3), stood(revision.task(other), 3));
    revision.terminate();
    revision.succeed();
}

/// Duration of a time slice: from the request to suspend until all are suspended, and from the
/// request to resume until the first one runs. The figures in the documents come from
/// `make bench-slicing`.
#[test]
#[ignore = "measures; make bench-slicing runs it"]
fn hundred_time_slices_are_measured() {
    let (rig, other) = (Rig::new(), Rig::new());
    let endless = json!({ "stop": { "steps": 60_000 } });
    let launch = RigLaunch::new(1, 2, 1, job(endless));
    let mut plain = other.start(&launch);
    let mut revision = rig.start(&launch);
    measure(&revision, |_| ());
    revision.succeed();
    plain.succeed();
    assert_eq!(rig.final_sha256(1), other.final_sha256(1), "to the bit");
}

/// The same with a worker on a GPU, which releases its GPU memory each time except for the driver's
/// own part.
#[test]
#[ignore = "needs a GPU"]
fn hundred_time_slices_release_the_gpu() {
    let [mut rig, mut other] = [Rig::new(), Rig::new()];
    for rig in [&mut rig, &mut other] {
        rig.environment.push(("MUSTER_DEVICE", "cuda".to_owned()));
    }
    // 5.8 million parameters: with the copies for products and two sets of gradients they take 93
    // MB.
    const MIB: u64 = 80;
    let long = json!({
        "engine": { "model": { "kind": "mlp", "hidden": [2048, 2048] } }, "stop": { "steps": 500 }
    });
    let launch = RigLaunch::new(1, 1, 1, job(long));
    let before = gpu_mib();
    let mut revision = rig.start(&launch);
    revision.chief().wait_for_log("computes on NVIDIA");
    at_step(revision.chief(), 1);
    let at_work = gpu_mib();
    let mut standing = Vec::new();
    measure(&revision, |cycle| {
        if cycle % 10 == 0 {
            standing.push(gpu_mib());
        }
    });
    let again = gpu_mib();
    println!("{}", revision.logs());
    revision.succeed();
    println!(
        "MiB of the GPU in use: before {before}, at work {at_work}, standing {standing:?}, at work again {again}, at the end {}",
        gpu_mib()
    );
    for standing in standing {
        assert!(at_work >= standing + MIB, "it gives its memory back");
    }
    other.start(&launch).succeed();
    assert_eq!(rig.final_sha256(1), other.final_sha256(1), "to the bit");
}

fn gpu_mib() -> u64 {
    let output = std::process::Command::new("nvidia-smi")
        .args([
            "--id=0",
            "--query-gpu=memory.used",
            "--format=csv,noheader,nounits",
        ])
        .output()
        .expect("this test needs a GPU and nvidia-smi");
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim()
        .parse()
        .unwrap_or_else(|_| panic!("this test needs a GPU: {output:?}"))
}

/// Sends the workers through a hundred time slices and prints the durations; `look` is called while
/// all are suspended.
fn measure(revision: &Revision, mut look: impl FnMut(u64)) {
    const CYCLES: u64 = 100;
    let workers = revision.workers();
    at_step(workers[0], 1);
    let (mut released_ms, mut resumed_ms) = (Vec::new(), Vec::new());
    for cycle in 0..CYCLES {
        let turn = 2 * cycle + 1;
        let began = std::time::Instant::now();
        revision.tell_turn(turn);
        let at: Vec<u64> = workers.iter().map(|worker| stood(worker, turn)).collect();
        released_ms.push(began.elapsed().as_secs_f64() * 1e3);
        assert!(at.iter().all(|step| *step == at[0]));
        look(cycle);
        let began = std::time::Instant::now();
        revision.tell_turn(turn + 1);
        went_on(workers[0], turn + 1);
        resumed_ms.push(began.elapsed().as_secs_f64() * 1e3);
    }
    for (what, mut ms) in [("to stand still", released_ms), ("to go on", resumed_ms)] {
        ms.sort_by(f64::total_cmp);
        let [median, most, longest] =
            [0.5, 0.9, 1.0].map(|share| ms[(share * (ms.len() - 1) as f64) as usize]);
        println!(
            "{what}: median {median:.1} ms, 90 % {most:.1} ms, longest {longest:.1} ms of {CYCLES}"
        );
    }
}
