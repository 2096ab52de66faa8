//! Jobs whose batch grows with their workers, or is chosen, get workers by the gradient noise.

use crate::scene::{Scene, tenant};
use muster_core::learn::{CourseNoise, Observation, ObservedBatch};
use muster_core::snapshot::{Adaptive, SnapshotFamily};

/// An update takes equally long with every number of workers, so the noise alone decides their
/// gain.
fn settled(noises: [(&str, Option<f64>); 2]) -> [u32; 2] {
    let mut scene = Scene::cluster(1, 8);
    for (name, noise) in noises {
        scene.job(name).workers(1, 8).steps(1_000_000).in_place();
        scene.find(name).adaptive = Some(Adaptive {
            noise,
            max_batch: None,
        });
    }
    for _ in 0..20 {
        scene.settle();
        for (name, _) in noises {
            let workers = scene.workers(name);
            scene.measured(name, workers, 10.0);
        }
        scene.later(120_000);
    }
    noises.map(|(name, _)| scene.workers(name))
}

#[test]
fn workers_go_to_job_with_noisy_gradients() {
    let [noisy, clean] = settled([("noisy", Some(200.0)), ("clean", Some(0.1))]);
    assert!(noisy >= 6 && clean <= 2, "{noisy} and {clean}");
    let [clean, noisy] = settled([("clean", Some(0.1)), ("noisy", Some(200.0))]);
    assert!(noisy >= 6 && clean <= 2, "{noisy} and {clean}");
}

#[test]
fn job_with_unknown_noise_explores() {
    let [unknown, clean] = settled([("unknown", None), ("clean", Some(0.0))]);
    assert!(unknown >= 4 && clean <= 2, "{unknown} and {clean}");
}

/// Returns the reported speed of the first job, and the time left times the speed over the steps
/// left.
fn reported(scene: &Scene) -> (f64, f64) {
    let (_, report) = muster_core::plan(&scene.snapshot, &scene.policy);
    let job = &report.jobs[0];
    (
        job.speed.steps_per_s,
        job.time_left_s * job.speed.steps_per_s / job.steps_left,
    )
}

#[test]
fn reported_speed_is_updates_times_gain() {
    let mut scene = Scene::cluster(1, 4);
    scene.job("a").workers(1, 4);
    scene.find("a").adaptive = Some(Adaptive {
        noise: Some(3.0),
        max_batch: None,
    });
    scene.settle();
    assert_eq!(scene.workers("a"), 4);
    scene.measured("a", 4, 10.0);
    scene.measured("a", 1, 10.0);
    // (3 + 1) / (3 / 4 + 1) steps per update.
    let (steps_per_s, whole) = reported(&scene);
    assert!(
        (steps_per_s - 10.0 * 16.0 / 7.0).abs() < 1e-9,
        "{steps_per_s}"
    );
    assert!((whole - 1.0).abs() < 1e-9);
    scene.find("a").adaptive = None;
    assert!((reported(&scene).0 - 10.0).abs() < 1e-9);
}

/// Updates of a family whose coordinators choose the batch: 10 ms, 0.2 ms for each example of a
/// part, and 5 ms of exchange between workers.
fn updates(workers: u32, examples: u32) -> Observation {
    let exchange_s = if workers > 1 { 0.005 } else { 0.0 };
    let update_s = 0.01 + 0.0002 * f64::from(examples / workers) + exchange_s;
    Observation {
        gpu_kind: "gpu".to_owned(),
        workers,
        ps_shards: 0,
        nodes: 1,
        steps_per_s: 1.0 / update_s,
        samples: 100.0,
        batch: Some(ObservedBatch {
            examples,
            exchange_s,
        }),
    }
}

/// Returns the speed of a new job on eight workers, whose family had this noise scale in examples.
fn speed_by_noise_of_family(noise_scale: f64) -> f64 {
    let mut scene = Scene::cluster(1, 8);
    scene.job("a").workers(8, 8).ps_shards(0, 0);
    scene.snapshot.families.push(SnapshotFamily {
        tenant: tenant(0),
        family: "measured".to_owned(),
        speeds: vec![
            updates(1, 100),
            updates(1, 400),
            updates(2, 400),
            updates(8, 1_600),
        ],
        noises: vec![CourseNoise {
            part: 0,
            noise_scale,
        }],
        restarts: None,
    });
    let job = scene.find("a");
    job.batch = 100;
    job.family = Some("measured".to_owned());
    job.adaptive = Some(Adaptive {
        noise: None,
        max_batch: Some(3_200),
    });
    scene.settle();
    reported(&scene).0
}

/// A new job has no noise of its own. That of its family tells what large batches are worth.
#[test]
fn new_job_expects_the_noise_of_its_family() {
    // Without noise only the first batch counts: 10 ms, 5 ms of exchange, and a part of 13.
    let clean = speed_by_noise_of_family(0.0);
    assert!((clean * 0.0176 - 1.0).abs() < 0.02, "{clean}");
    // With noise alone the largest batch, with parts of 400, is worth 32 steps.
    let noisy = speed_by_noise_of_family(1e12);
    assert!((noisy * 0.095 / 32.0 - 1.0).abs() < 0.02, "{noisy}");
}

/// Returns a cluster with a job on one GPU whose batch lies between 100 and 1,600.
fn choosing(noise: Option<f64>) -> Scene {
    let mut scene = Scene::cluster(1, 1);
    scene.job("a").workers(1, 1).ps_shards(0, 0);
    let job = scene.find("a");
    job.batch = 100;
    job.adaptive = Some(Adaptive {
        noise,
        max_batch: Some(1_600),
    });
    job.placed_speeds = vec![updates(1, 100), updates(1, 400)];
    scene.settle();
    scene
}

#[test]
fn report_states_the_batch_and_what_it_saves() {
    let batch = |scene: &Scene| {
        let (_, report) = muster_core::plan(&scene.snapshot, &scene.policy);
        report.jobs[0].batch
    };
    // With noise alone the largest batch needs 330 ms for 16 steps, the first one 30 ms for each.
    let found = batch(&choosing(Some(1e9))).expect("measured");
    assert_eq!((found.batch, found.smallest_batch), (1_600, 100));
    assert!(
        (found.smallest_steps_per_s * 0.03 - 1.0).abs() < 0.01,
        "{found:?}"
    );
    assert!(
        (found.speedup() / (0.48 / 0.33) - 1.0).abs() < 0.01,
        "{found:?}"
    );
    // Without noise a larger batch does not help.
    let found = batch(&choosing(Some(0.0))).expect("measured");
    assert_eq!((found.batch, found.speedup()), (100, 1.0));
    // Nothing is predicted without a measured noise or update, and for a constant batch.
    assert_eq!(batch(&choosing(None)), None);
    let mut scene = choosing(Some(1e9));
    scene.find("a").placed_speeds.clear();
    assert_eq!(batch(&scene), None);
    let mut scene = choosing(Some(1e9));
    scene.find("a").adaptive = None;
    assert_eq!(batch(&scene), None);
}

#[test]
fn reported_speed_is_goodput_of_the_best_batch() {
    let speed = |noise| reported(&choosing(Some(noise))).0;
    // Without noise only the first batch counts: an update of 100 examples takes 30 ms.
    assert!((speed(0.0) - 1.0 / 0.03).abs() < 1e-6, "{}", speed(0.0));
    // With noise alone a step is 100 examples. The largest batch needs 330 ms for 16 steps.
    let steps_per_s = speed(1e9);
    assert!(
        (steps_per_s / (16.0 / 0.33) - 1.0).abs() < 0.01,
        "{steps_per_s}"
    );
}
