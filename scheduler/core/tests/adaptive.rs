//! Jobs whose batch grows with their workers get workers by the gradient noise scale.

use crate::scene::Scene;
use muster_core::snapshot::Adaptive;

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
