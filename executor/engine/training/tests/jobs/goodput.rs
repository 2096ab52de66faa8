//! Real processes whose coordinator chooses the batch (`batch_rule: goodput`).
//!
//! The network and its first batch are small. An update takes nearly the same time with any batch,
//! and the gradients of few examples are mostly noise, so larger batches always pay.

use crate::rig::reports::{accuracy_at, finished, samples, written};
use crate::rig::workers::Crew;
use crate::rig::{Rig, RigLaunch, spec};
use muster_model::assignment::TaskReport;
use muster_model::spec::JobSpec;
use serde_json::json;
use std::collections::BTreeMap;

/// Smallest and largest batch.
const LEAST: usize = 4;
const MOST: usize = 16;

/// Steps of a job. The coordinator decides once per second. On a fast machine, an update takes
/// 30 µs, and 90,000 steps pass before the second decision.
const STEPS: u64 = 200_000;

/// SGD with momentum and a schedule that ends with the last step; 160 steps per epoch.
fn document(steps: u64) -> JobSpec {
    document_with(steps, 0.01)
}

fn document_with(steps: u64, learning_rate: f64) -> JobSpec {
    spec(json!({
        "engine": {
            "model": { "kind": "mlp", "hidden": [16] },
            "optimizer": { "kind": "sgd", "learning_rate": learning_rate, "momentum": 0.9 },
            "schedule": { "warmup_steps": 20, "decay": { "kind": "cosine", "total_steps": steps } },
            "batch": LEAST,
            "batch_rule": "goodput",
            "max_batch": MOST,
        },
        "exchange": { "topology": "all_reduce" },
        "checkpoint": { "every_steps": 1000, "keep": 100 },
        "stop": { "steps": steps },
    }))
}

/// Steps from which a worker has a new share, with the batch, from its log.
fn batches(log: &str) -> Vec<(u64, usize)> {
    let lines = log.lines().filter(|line| line.starts_with("worker "));
    let shares = lines.filter_map(|line| line.split_once(" from step "));
    shares
        .map(|(_, rest)| {
            let (step, rest) = rest.split_once(", batch ").unwrap();
            let (batch, _) = rest.split_once(',').unwrap();
            (step.parse().unwrap(), batch.parse().unwrap())
        })
        .collect()
}

/// Checks that all workers have the same state and the same batch from each of these steps on.
fn agree(crew: &Crew<'_>) {
    crew.agree();
    let mut by_step: BTreeMap<u64, usize> = BTreeMap::new();
    for (step, batch) in crew.tasks.iter().flat_map(|task| batches(&task.log())) {
        let known = *by_step.entry(step).or_insert(batch);
        assert_eq!(known, batch, "step {step}\n{}", crew.logs());
        assert!((LEAST..=MOST).contains(&batch), "{}", crew.logs());
    }
    let mut largest = LEAST;
    for batch in by_step.into_values() {
        assert!(batch <= 2 * largest, "{}", crew.logs());
        largest = largest.max(batch);
    }
}

/// Waits until the coordinator has chosen this batch.
fn wait_for_batch(crew: &mut Crew<'_>, batch: usize) {
    crew.chief().wait_for_log(&format!(", batch {batch}, "));
}

/// Checks that the job has ended at its last step with a good model.
fn ended(crew: &mut Crew<'_>, steps: u64) {
    let last = crew.chief().wait_for("the end", finished);
    // The last update may be worth several steps.
    assert!((steps..steps + 4).contains(&last), "{last}");
    let accuracy = accuracy_at(crew.chief(), last);
    assert!(accuracy > 0.9, "{accuracy}");
}

#[test]
fn batch_grows_within_its_limits() {
    let rig = Rig::new();
    let mut crew = Crew::start(&rig, &RigLaunch::new(1, 2, 0, document(STEPS)));
    crew.succeed();
    agree(&crew);
    ended(&mut crew, STEPS);
    let logs: Vec<_> = crew.tasks.iter().map(|task| batches(&task.log())).collect();
    assert_eq!(logs[0], logs[1]);
    let chosen: Vec<usize> = logs[0].iter().map(|(_, batch)| *batch).collect();
    assert_eq!(chosen[..3], [4, 8, 16], "{}", crew.logs());
    let seen = samples(&crew.chief().events());
    let mut largest = 0.0f64;
    for sample in &seen {
        let (batch, gain) = (sample.batch().unwrap(), sample.gain.unwrap());
        // Only whole steps are counted; the fraction is added to the next update.
        assert!(gain < batch / LEAST as f64 + 0.1, "{sample:?}");
        largest = largest.max(batch);
    }
    assert!((largest - MOST as f64).abs() < 0.5, "{largest}");
}

/// Noise scales that the log names with changes of the batch.
fn noise_scales(log: &str) -> Vec<f64> {
    let changes = log
        .lines()
        .filter_map(|line| line.split_once(", noise scale "));
    changes
        .map(|(_, rest)| rest.split_once(' ').unwrap().0.parse().unwrap())
        .collect()
}

/// Returns the noise scale that this number of workers measures first.
fn first_noise_scale(workers: u32) -> f64 {
    let rig = Rig::new();
    // The parameters stay, so that the noise does.
    let document = document_with(1_000_000, 1e-12);
    let mut crew = Crew::start(&rig, &RigLaunch::new(1, workers, 0, document));
    wait_for_batch(&mut crew, 8);
    noise_scales(&crew.chief().log())[0]
}

/// Halves of a single worker's examples measure the noise that two workers measure. Each estimate
/// is random: single ones were 0.5 to 2.9 times that of two workers.
#[test]
fn single_worker_measures_the_noise_of_two() {
    let single = [1, 1, 1].map(first_noise_scale);
    let mean = single.iter().product::<f64>().cbrt();
    let ratio = mean / first_noise_scale(2);
    assert!((0.4..2.5).contains(&ratio), "{single:?}: {ratio}");
}

#[test]
fn batch_of_a_single_worker_grows() {
    let rig = Rig::new();
    let mut crew = Crew::start(&rig, &RigLaunch::new(1, 1, 0, document(STEPS)));
    crew.succeed();
    agree(&crew);
    ended(&mut crew, STEPS);
    let chosen = batches(&crew.chief().log());
    assert!(chosen.len() > 1 && chosen[1].1 == 8, "{}", crew.logs());
}

/// Two workers, three, two: a new worker begins with the present batch.
#[test]
fn new_worker_has_the_batch_of_the_others() {
    let rig = Rig::new();
    let mut crew = Crew::start(&rig, &RigLaunch::new(1, 2, 0, document(STEPS)));
    wait_for_batch(&mut crew, 8);
    crew.grow(2, 1);
    let since = crew
        .chief()
        .wait_for("three workers", |report| match report {
            TaskReport::Resized {
                workers: 3, step, ..
            } => Some(*step),
            _ => None,
        });
    crew.wait_for_step(since + 500);
    crew.shrink(3, &[1]);
    crew.succeed();
    agree(&crew);
    ended(&mut crew, STEPS);
    let first = batches(&crew.tasks[2].log())[0];
    assert!(first.1 >= 8, "{first:?}\n{}", crew.logs());
}

#[test]
fn killed_worker_leaves_the_others_at_one_batch() {
    let rig = Rig::new();
    let mut crew = Crew::start(&rig, &RigLaunch::new(1, 4, 0, document(STEPS)));
    wait_for_batch(&mut crew, 8);
    crew.tasks[2].signal("KILL");
    let codes = crew.wait();
    assert_eq!(codes, [0, 0, -1, 0], "{}", crew.logs());
    agree(&crew);
    ended(&mut crew, STEPS);
    let log = crew.chief().log();
    let share = log.lines().find(|line| line.starts_with("worker 0 of 3 "));
    let first = batches(share.unwrap())[0];
    assert!(first.1 >= 8, "{first:?}\n{log}");
}

#[test]
fn killed_run_continues_with_the_batch_of_its_checkpoint() {
    let rig = Rig::new();
    let mut crew = Crew::start(&rig, &RigLaunch::new(1, 2, 0, document(STEPS)));
    wait_for_batch(&mut crew, 8);
    let (since, _) = batches(&crew.chief().log())[1];
    let kept = crew.chief().wait_for("a checkpoint", |report| {
        written(report).filter(|step| *step > since)
    });
    crew.tasks.iter_mut().for_each(|task| task.signal("KILL"));
    // The other worker may have noticed the death of the coordinator before its own.
    assert_eq!(crew.wait()[0], -1, "{}", crew.logs());
    let before = batches(&crew.chief().log());

    let launch = RigLaunch::new(2, 2, 0, document(STEPS)).resuming(kept);
    let mut crew = Crew::start(&rig, &launch);
    crew.succeed();
    agree(&crew);
    ended(&mut crew, STEPS);
    let (step, batch) = batches(&crew.chief().log())[0];
    assert!(step >= kept, "{}", crew.logs());
    let known = before.iter().rfind(|(from, _)| *from <= step);
    assert_eq!(known.map(|(_, batch)| *batch), Some(batch));
}
