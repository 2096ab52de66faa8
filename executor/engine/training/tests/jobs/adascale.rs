//! Real processes whose batch grows with the number of workers (`batch_rule: adascale`).

use crate::rig::reports::{accuracy_at, finished, samples};
use crate::rig::workers::Crew;
use crate::rig::{Rig, RigLaunch, spec};
use muster_model::assignment::TaskReport;
use muster_model::progress::Sample;
use muster_model::spec::JobSpec;
use serde_json::json;
use std::fs;

/// SGD with momentum and a schedule that ends with the last step; 20 steps per epoch.
fn document(steps: u64, rule: &str) -> JobSpec {
    spec(json!({
        "engine": {
            "optimizer": { "kind": "sgd", "learning_rate": 0.05, "momentum": 0.9 },
            "schedule": { "warmup_steps": 20, "decay": { "kind": "cosine", "total_steps": steps } },
            "batch_rule": rule,
        },
        "exchange": { "topology": "all_reduce" },
        "checkpoint": { "every_steps": 101, "keep": 100 },
        "stop": { "steps": steps },
    }))
}

/// Model, number of checkpoints and gains of a job of one worker.
fn trained_alone(rule: &str) -> (String, usize, Vec<Option<f64>>) {
    let rig = Rig::new();
    let mut crew = Crew::start(&rig, &RigLaunch::new(1, 1, 0, document(120, rule)));
    crew.succeed();
    let gains = samples(&crew.chief().events())
        .iter()
        .map(|sample| sample.gain)
        .collect();
    (rig.final_sha256(1), rig.checkpoints().len(), gains)
}

#[test]
fn one_worker_has_the_bits_of_a_constant_batch() {
    let (plain, checkpoints, gains) = trained_alone("constant");
    assert!(gains.iter().all(Option::is_none));
    let (scaled, same, gains) = trained_alone("adascale");
    assert_eq!(scaled, plain);
    assert_eq!(same, checkpoints);
    assert!(gains.iter().all(|gain| *gain == Some(1.0)), "{gains:?}");
}

/// One worker, three, two: new workers continue at the step of the others, and steps count the gain
/// of the updates.
#[test]
fn batch_grows_and_shrinks_with_the_workers() {
    let rig = Rig::new();
    let mut crew = Crew::start(&rig, &RigLaunch::new(1, 1, 0, document(4_000, "adascale")));
    crew.wait_for_step(40);
    crew.grow(2, 2);
    let since = crew
        .chief()
        .wait_for("three workers", |report| match report {
            TaskReport::Resized {
                workers: 3, step, ..
            } => Some(*step),
            _ => None,
        });
    crew.wait_for_step(since + 200);
    crew.shrink(3, &[1]);
    crew.succeed();
    crew.agree();
    let last = crew.chief().wait_for("the end", finished);
    assert!((4_000..4_003).contains(&last), "{last}");
    let accuracy = accuracy_at(crew.chief(), last);
    assert!(accuracy > 0.9, "{accuracy}");

    let seen: Vec<Sample> = samples(&crew.chief().events());
    let mut alone = seen.iter().filter(|sample| sample.workers == 1);
    assert!(alone.all(|sample| sample.gain == Some(1.0)));
    for workers in [2, 3] {
        let of_size = seen.iter().filter(|sample| sample.workers == workers);
        // The first sample after a resize may contain updates of the previous size.
        let of_size: Vec<&Sample> = of_size.skip(1).collect();
        assert!(!of_size.is_empty(), "{workers}: {seen:?}");
        for sample in &of_size {
            let gain = sample.gain.unwrap();
            // Only whole steps are counted; the fraction is added to the next update.
            assert!(
                (0.9..=f64::from(workers) + 0.1).contains(&gain),
                "{sample:?}"
            );
            let updates_per_s = sample.steps_per_s / gain;
            let batch = sample.examples_per_s.unwrap() / updates_per_s;
            assert!((batch - 32.0 * f64::from(workers)).abs() < 1.0, "{batch}");
            assert!(sample.noise_scale.is_none_or(|noise| noise > 0.0));
        }
        let gains = of_size.iter().filter_map(|sample| sample.gain);
        let most = gains.fold(0.0, f64::max);
        assert!(most > 1.05, "{workers}: {most}");
    }
}

/// Runs the job to its end. Returns its model, its steps and its updates.
fn completed(rig: &Rig, launch: &RigLaunch) -> (String, u64, u64) {
    let mut crew = Crew::start(rig, launch);
    crew.succeed();
    let folder = format!("final-r{}", launch.revision);
    let manifest = fs::read(rig.job_folder().join(folder).join("manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    let step = manifest["step"].as_u64().unwrap();
    let updates = manifest["optimizer_updates"].as_u64().unwrap();
    assert!(
        updates < step && 3 * updates >= step,
        "{updates} updates, {step} steps"
    );
    (rig.final_sha256(launch.revision), step, updates)
}

/// Checkpoints contain the state that the next learning rate depends on: a killed run ends with the
/// bits of an uninterrupted one.
#[test]
fn killed_run_ends_with_the_bits_of_an_uninterrupted_one() {
    let rig = Rig::new();
    let whole = completed(&rig, &RigLaunch::new(1, 3, 0, document(303, "adascale")));
    let kept: Vec<String> = rig.checkpoints();
    // A skipped multiple of 101 counts too, except while the writer is busy.
    assert!(kept.len() >= 2, "{kept:?}");

    // As if the run had been killed after its first checkpoint.
    fs::remove_dir_all(rig.job_folder().join("final-r1")).unwrap();
    for name in &kept[1..] {
        fs::remove_dir_all(rig.job_folder().join(name)).unwrap();
    }
    let manifest = fs::read(rig.job_folder().join(&kept[0]).join("manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    let step = manifest["step"].as_u64().unwrap();
    assert!((101..104).contains(&step), "{step}");
    let resumed = RigLaunch::new(2, 3, 0, document(303, "adascale")).resuming(step);
    assert_eq!(completed(&rig, &resumed), whole);
}

/// Each of two workers has half a batch from the first step on; a killed worker leaves the others
/// in step.
#[test]
fn killed_worker_leaves_the_others_in_step() {
    let rig = Rig::new();
    let mut document = document(2_000, "adascale");
    document.scale.workers.min = 2;
    document.scale.workers.max = 4;
    let mut crew = Crew::start(&rig, &RigLaunch::new(1, 4, 0, document));
    crew.wait_for_step(60);
    crew.tasks[2].signal("KILL");
    let codes = crew.wait();
    assert_eq!(codes, [0, 0, -1, 0], "{}", crew.logs());
    crew.agree();
    let last = crew.chief().wait_for("the end", finished);
    let accuracy = accuracy_at(crew.chief(), last);
    assert!(accuracy > 0.9, "{accuracy}");
    let seen = samples(&crew.chief().events());
    let newest = seen.last().unwrap();
    assert_eq!(newest.workers, 3);
    let gain = newest.gain.unwrap();
    assert!((0.9..1.6).contains(&gain), "1 to 3/2: {gain}");
}
