//! Cost of changes of the task set of a running job: 2, 6 and 3 workers on 1, 3 and 2 PS shards in
//! one training on Fashion-MNIST, then SIGKILL of a worker and of a replicated shard. Run by
//! `cargo bench --bench elasticity`, with `MUSTER_DATASETS`.
//!
//! A pause is the additional time of the first step after a change, compared with a usual step
//! before it, as the coordinator measures both. It is given in usual steps. The final accuracy is
//! compared with that of the same training without changes.

#![expect(clippy::disallowed_methods, reason = "the rig waits with a time limit")]

#[path = "../tests/rig/mod.rs"]
mod rig;

use muster_model::assignment::TaskReport;
use muster_model::spec::JobSpec;
use muster_model::task::Role;
use rig::reports::{last_accuracy, samples};
use rig::{Revision, Rig, RigLaunch, spec};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Number of steps between two changes.
const APART: u64 = 60;
const EPOCHS: u64 = 3;
/// Longer than a training takes on two shared cores.
const PATIENCE: Duration = Duration::from_secs(600);

fn main() {
    let Some(datasets) = std::env::var_os("MUSTER_DATASETS").map(PathBuf::from) else {
        eprintln!(
            "elasticity: not run; MUSTER_DATASETS must name the folder that has fashion-mnist (make bench sets it)"
        );
        return;
    };
    let whole = undisturbed(&datasets);
    let (changes, changed) = disturbed(&datasets);
    println!(
        "\nCNN 32-64, dense 128, batch 256, BSP, {EPOCHS} epochs of Fashion-MNIST; nobody who stays is started again"
    );
    println!(
        "{:<32} {:>16} {:>16} {:>16}",
        "change", "usual step ms", "first step ms", "pause in steps"
    );
    for change in &changes {
        let pause = (change.first_ms - change.usual_ms).max(0.0);
        println!(
            "{:<32} {:>16.1} {:>16.1} {:>16.2}",
            change.name,
            change.usual_ms,
            change.first_ms,
            pause / change.usual_ms
        );
    }
    println!(
        "test accuracy: {:.2} % undisturbed, {:.2} % changed",
        whole * 100.0,
        changed * 100.0
    );
}

struct ResizeTimes {
    name: &'static str,
    /// Milliseconds of a usual step before the change.
    usual_ms: f64,
    /// Milliseconds of the first step after the change.
    first_ms: f64,
}

fn document() -> JobSpec {
    spec(json!({
        "engine": {
            "model": { "kind": "cnn", "channels": [32, 64], "dense": [128] },
            "optimizer": { "kind": "sgd", "learning_rate": 0.05, "momentum": 0.9 },
            "batch": 256,
        },
        "exchange": { "shard_replicas": 1 },
        "scale": { "workers": { "min": 1, "max": 6 }, "ps_shards": { "min": 1, "max": 3 } },
        "checkpoint": { "every_minutes": 60 },
        "stop": { "epochs": EPOCHS },
    }))
}

fn undisturbed(datasets: &Path) -> f64 {
    let rig = Rig::on(datasets);
    let mut revision = rig.start(&RigLaunch::new(1, 2, 1, document()));
    finish(&mut revision, &[])
}

fn disturbed(datasets: &Path) -> (Vec<ResizeTimes>, f64) {
    let rig = Rig::on(datasets);
    let first = RigLaunch::new(1, 2, 1, document());
    let mut revision = rig.start(&first);
    let mut changes = Vec::new();

    train_on(&mut revision);

    let more = RigLaunch {
        revision: 2,
        workers: 6,
        ps_shards: 3,
        ..first.clone()
    };
    rig.resize(&mut revision, &more, &[0, 1], &[0]);
    changes.push(resized(&mut revision, 1, "2 to 6 workers, 1 to 3 shards"));

    train_on(&mut revision);
    let fewer = RigLaunch {
        revision: 3,
        workers: 3,
        ps_shards: 2,
        ..first
    };
    rig.resize(&mut revision, &fewer, &[0, 4, 2], &[2, 1]);
    changes.push(resized(&mut revision, 2, "6 to 3 workers, 3 to 2 shards"));

    train_on(&mut revision);
    let worker = Role::Worker { rank: 4 };
    revision.task(worker).signal("KILL");
    changes.push(resized(&mut revision, 3, "SIGKILL of one of 3 workers"));

    train_on(&mut revision);
    let shard = Role::PsShard { index: 1 };
    revision.task(shard).signal("KILL");
    changes.push(inherited(&mut revision));
    let accuracy = finish(&mut revision, &[worker, shard]);
    (changes, accuracy)
}

/// Waits until [`APART`] more steps are done.
fn train_on(revision: &mut Revision) {
    let from = reached(&revision.chief().events());
    wait(revision, |events| {
        (reached(events) >= from + APART).then_some(())
    });
}

fn reached(events: &[TaskReport]) -> u64 {
    samples(events).last().map_or(0, |sample| sample.step)
}

/// Change number `number`, counted from 1.
fn resized(revision: &mut Revision, number: usize, name: &'static str) -> ResizeTimes {
    let line = wait_for_log(revision, |log| {
        log.lines()
            .filter(|line| line.contains("resized at step"))
            .nth(number - 1)
            .map(str::to_owned)
    });
    change(name, &line)
}

fn inherited(revision: &mut Revision) -> ResizeTimes {
    let message = wait(revision, |events| {
        events.iter().find_map(|event| match event {
            TaskReport::Note { message } if message.contains("continues as it from its copy") => {
                Some(message.clone())
            }
            _ => None,
        })
    });
    change("SIGKILL of one of 2 shards", &message)
}

/// Parses the coordinator's log line: "… step took 41.0 ms, a usual one 30.2 ms".
fn change(name: &'static str, said: &str) -> ResizeTimes {
    let [usual_ms, first_ms] = ["a usual one ", "step took "].map(|words| {
        let rest = said.split(words).nth(1).expect("the chief says both");
        let number = rest.split_whitespace().next().expect("a number follows");
        number.parse().expect("a number follows")
    });
    ResizeTimes {
        name,
        usual_ms,
        first_ms,
    }
}

fn wait<T>(revision: &mut Revision, find: impl Fn(&[TaskReport]) -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = find(&revision.chief().events()) {
            return found;
        }
        patient(revision, began);
    }
}

fn wait_for_log(revision: &mut Revision, find: impl Fn(&str) -> Option<String>) -> String {
    let began = Instant::now();
    loop {
        if let Some(found) = find(&revision.chief().log()) {
            return found;
        }
        patient(revision, began);
    }
}

fn patient(revision: &Revision, began: Instant) {
    assert!(began.elapsed() < PATIENCE, "{}", revision.logs());
    thread::sleep(Duration::from_millis(5));
}

/// Checks that all tasks except the killed ones exit with 0 and that the coordinator started once.
/// Returns the accuracy of its last evaluation.
fn finish(revision: &mut Revision, killed: &[Role]) -> f64 {
    wait(revision, |events| {
        let mut events = events.iter();
        let has_ended = events.any(|event| matches!(event, TaskReport::Finished { .. }));
        has_ended.then_some(())
    });
    let codes = revision.wait();
    for (task, code) in revision.tasks.iter().zip(codes) {
        let expected = if killed.contains(&task.role) { -1 } else { 0 };
        assert_eq!(code, expected, "{}\n{}", task.role, revision.logs());
    }
    let events = revision.chief().events();
    let starts = events
        .iter()
        .filter(|event| matches!(event, TaskReport::Ready { .. }));
    assert_eq!(starts.count(), 1);
    last_accuracy(&events)
}
