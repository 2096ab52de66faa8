//! Policies of attained service on snapshots: service, time of demotion and history.

use crate::scene::Scene;
use muster_core::policies::name::PolicyName;
use muster_core::policies::tiresias::DEMOTED_GPU_S;
use muster_core::policy::Policy;
use muster_core::problem_of;
use muster_core::snapshot::{ClusterSnapshot, SnapshotService};

/// Three queued jobs with this service for one GPU. The first one was submitted first.
fn queue(policy: PolicyName, services: [SnapshotService; 3]) -> Scene {
    let mut scene = Scene::cluster(1, 1);
    scene.policy = Policy::named(policy);
    for (name, service) in ["a", "b", "c"].into_iter().zip(services) {
        scene.job(name);
        scene.find(name).service = Some(service);
    }
    scene
}

/// Name of the job that gets the GPU.
fn first(mut scene: Scene) -> &'static str {
    scene.round();
    let mut names = ["a", "b", "c"].into_iter();
    let started = names.find(|name| !scene.find(name).tasks.is_empty());
    started.expect("one job starts")
}

fn attained(gpu_s: f64) -> SnapshotService {
    SnapshotService {
        gpu_s,
        demoted_ms: None,
    }
}

fn demoted(demoted_ms: i64) -> SnapshotService {
    SnapshotService {
        gpu_s: DEMOTED_GPU_S,
        demoted_ms: Some(demoted_ms),
    }
}

#[test]
fn tiresias_serves_lower_queue_in_order_of_demotion() {
    let services = [demoted(900_000), demoted(800_000), demoted(850_000)];
    assert_eq!(first(queue(PolicyName::Tiresias, services)), "b");
    let services = [demoted(800_000), demoted(700_000), attained(10.0)];
    assert_eq!(first(queue(PolicyName::Tiresias, services)), "c");
}

#[test]
fn gittins_index_uses_history_of_snapshot() {
    let scene = |history: &[f64]| {
        let services = [attained(20_000.0), attained(4_000.0), attained(20_000.0)];
        let mut scene = queue(PolicyName::TiresiasGittins, services);
        scene.snapshot.history_gpu_s = history.to_vec();
        scene
    };
    assert_eq!(first(scene(&[])), "b", "the least service");
    // Jobs of 3,600 GPU-seconds need 96,000 more, jobs of 14,400 need 600 more.
    let history = [[15_000.0; 10], [1e6; 10]].concat();
    assert_eq!(first(scene(&history)), "a", "the nearest end");
}

#[test]
fn snapshot_without_service_uses_trained_time() {
    let mut scene = queue(PolicyName::Tiresias, [attained(7.0); 3]);
    let attained = |snapshot: &ClusterSnapshot| {
        problem_of(snapshot, &Policy::named(PolicyName::Tiresias)).jobs[0].attained_gpu_s
    };
    assert!((attained(&scene.snapshot) - 7.0).abs() < 1e-9);
    for name in ["a", "b", "c"] {
        scene.find(name).service = None;
    }
    let text = serde_json::to_string(&scene.snapshot).expect("JSON");
    assert!(!text.contains("service") && !text.contains("history"));
    let earlier: ClusterSnapshot = serde_json::from_str(&text).expect("as earlier releases wrote");
    assert_eq!(earlier, scene.snapshot);
    assert!(attained(&earlier).abs() < 1e-9);
}

#[test]
fn held_gpus_are_served_until_demotion() {
    let mut scene = Scene::cluster(1, 4);
    scene.job("a").workers(4, 4);
    scene.settle();
    let job = scene.find("a");
    job.service = Some(attained(DEMOTED_GPU_S - 10.0));
    job.serve(1_000, 1.0);
    assert_eq!(job.service, Some(attained(DEMOTED_GPU_S - 6.0)));
    job.serve(2_000, 2.0);
    let expected = SnapshotService {
        gpu_s: DEMOTED_GPU_S + 2.0,
        demoted_ms: Some(3_500),
    };
    assert_eq!(job.service, Some(expected));
    job.serve(4_000, 2.0);
    let demoted_ms = job.service.and_then(|service| service.demoted_ms);
    assert_eq!(demoted_ms, Some(3_500));
}
