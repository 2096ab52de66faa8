//! Decisions from what was measured by GPU kind and placement, by the job or its family.

use crate::scene::{Scene, tenant};
use muster_core::learn::Observation;
use muster_core::policies::name::PolicyName;
use muster_core::policy::Policy;
use muster_core::snapshot::{Restarts, SnapshotFamily};
use muster_model::job::Intent;

fn measured(kind: &str, (workers, nodes): (u32, u32), steps_per_s: f64) -> Observation {
    Observation {
        gpu_kind: kind.to_owned(),
        workers,
        ps_shards: 1,
        nodes,
        steps_per_s,
        samples: 100.0,
        batch: None,
    }
}

/// Makes the measurements known as those of a family of the first tenant.
fn know(scene: &mut Scene, family: &str, speeds: Vec<Observation>) {
    scene.snapshot.families.push(SnapshotFamily {
        restarts: None,
        tenant: tenant(0),
        family: family.to_owned(),
        noises: Vec::new(),
        speeds,
    });
}

/// Returns one node of a fast kind and one of a slow kind, with one GPU each, and the jobs `a` and
/// `b`, each of a family of its own name.
fn two_kinds(policy: PolicyName) -> Scene {
    let mut scene = Scene::cluster(2, 1);
    scene.policy = Policy::named(policy);
    for (node, kind) in scene.snapshot.nodes.iter_mut().zip(["fast", "slow"]) {
        node.gpu_model = kind.to_owned();
    }
    for name in ["a", "b"] {
        scene.job(name).0.family = Some(name.to_owned());
    }
    scene
}

/// Returns the GPU kind of the job's node.
fn kind_of(scene: &mut Scene, job: &str) -> String {
    let node = scene.find(job).tasks[0].node;
    let mut nodes = scene.snapshot.nodes.iter();
    let node = nodes.find(|one| one.id == node).expect("a node");
    node.gpu_model.clone()
}

fn fast_and_slow(fast: f64, slow: f64) -> Vec<Observation> {
    vec![
        measured("fast", (1, 1), fast),
        measured("slow", (1, 1), slow),
    ]
}

#[test]
fn muster_gives_fast_kind_to_job_with_most_gain() {
    for (gains, other) in [("a", "b"), ("b", "a")] {
        let mut scene = two_kinds(PolicyName::Muster);
        know(&mut scene, gains, fast_and_slow(40.0, 10.0));
        know(&mut scene, other, fast_and_slow(12.0, 10.0));
        scene.settle();
        assert_eq!(kind_of(&mut scene, gains), "fast");
        assert_eq!(kind_of(&mut scene, other), "slow");
    }
}

#[test]
fn running_job_moves_to_free_kind_once_measured() {
    let moves = |fast: f64| {
        let mut scene = two_kinds(PolicyName::Muster);
        scene.snapshot.jobs.pop();
        scene.find("a").progress.max_steps = Some(1_000_000);
        scene.snapshot.nodes[0].drained = true;
        scene.settle();
        assert_eq!(kind_of(&mut scene, "a"), "slow");
        scene.snapshot.nodes[0].drained = false;
        know(&mut scene, "a", fast_and_slow(fast, 10.0));
        scene.later(600_000);
        scene.settle();
        kind_of(&mut scene, "a")
    };
    assert_eq!(moves(10.0), "slow");
    assert_eq!(moves(40.0), "fast");
}

#[test]
fn kinds_compare_by_other_families_where_unmeasured() {
    for (unmeasured, other) in [("a", "b"), ("b", "a")] {
        let mut scene = two_kinds(PolicyName::Muster);
        // Four of six families are about three times as fast on the fast kind.
        for (family, fast) in [("x", 30.0), ("y", 28.0), ("z", 1.0), ("v", 33.0)] {
            know(&mut scene, family, fast_and_slow(fast, 10.0));
        }
        know(&mut scene, unmeasured, vec![measured("slow", (1, 1), 10.0)]);
        know(&mut scene, other, fast_and_slow(10.0, 10.0));
        scene.settle();
        assert_eq!(kind_of(&mut scene, unmeasured), "fast");
    }
}

#[test]
fn own_measurements_override_family() {
    let mut scene = two_kinds(PolicyName::Muster);
    know(&mut scene, "a", fast_and_slow(40.0, 10.0));
    know(&mut scene, "b", fast_and_slow(20.0, 10.0));
    // The job itself gains nothing from the fast kind; the family covers it.
    let own = fast_and_slow(10.0, 10.0);
    for (own, all) in own.iter().zip(&mut scene.snapshot.families[0].speeds) {
        all.steps_per_s = (own.steps_per_s * all.steps_per_s).sqrt();
        all.samples += own.samples;
    }
    scene.find("a").placed_speeds = own;
    scene.settle();
    assert_eq!(kind_of(&mut scene, "b"), "fast");
}

/// Returns the workers with which a job of this family starts on an empty node with 8 GPUs.
fn first_size(policy: PolicyName, speeds: &[(u32, f64)]) -> u32 {
    let mut scene = Scene::cluster(1, 8);
    scene.policy = Policy::named(policy);
    scene.job("new").workers(1, 8).0.family = Some("known".to_owned());
    let speeds = speeds
        .iter()
        .map(|&(workers, speed)| measured("gpu", (workers, 1), speed));
    let speeds: Vec<Observation> = speeds.collect();
    if !speeds.is_empty() {
        know(&mut scene, "known", speeds);
    }
    scene.round();
    scene.find("new").size().0
}

#[test]
fn new_job_starts_at_size_of_its_family_curve() {
    let saturates = [(1, 10.0), (2, 19.0), (4, 20.0), (8, 11.0)];
    let scales = [(1, 10.0), (2, 20.0), (4, 39.0), (8, 76.0)];
    for policy in [PolicyName::Muster, PolicyName::Optimus] {
        assert_eq!(first_size(policy, &[]), 8, "cold start of {policy:?}");
        assert_eq!(first_size(policy, &scales), 8, "{policy:?}");
        let known = first_size(policy, &saturates);
        assert!((2..=4).contains(&known), "{known} workers with {policy:?}");
    }
}

#[test]
fn measured_spread_penalty_keeps_job_on_one_node() {
    // Two nodes of 2 GPUs: three workers need both nodes.
    let workers = |spread_speed: f64| {
        let mut scene = Scene::cluster(2, 2);
        scene.policy = Policy::named(PolicyName::Muster);
        scene.job("new").workers(1, 4).0.family = Some("known".to_owned());
        let speeds = vec![
            measured("gpu", (1, 1), 10.0),
            measured("gpu", (2, 1), 19.0),
            measured("gpu", (2, 2), 19.0 * spread_speed),
            measured("gpu", (4, 2), 36.0 * spread_speed),
        ];
        know(&mut scene, "known", speeds);
        scene.round();
        scene.find("new").size().0
    };
    assert_eq!(workers(0.98), 4);
    assert_eq!(workers(0.3), 2);
}

#[test]
fn snapshot_without_measurements_is_stored_as_before() {
    let mut scene = Scene::cluster(1, 1);
    scene.job("a");
    let text = serde_json::to_string(&scene.snapshot).expect("JSON");
    for field in ["families", "placed_speeds", "\"family\""] {
        assert!(!text.contains(field), "{field} in {text}");
    }
    know(&mut scene, "known", vec![measured("gpu", (1, 1), 10.0)]);
    let text = serde_json::to_string(&scene.snapshot).expect("JSON");
    assert_eq!(
        serde_json::from_str::<muster_core::snapshot::ClusterSnapshot>(&text).expect("read"),
        scene.snapshot
    );
}

/// Returns the workers of two equal running jobs under a policy, of which `young` loses much loss
/// per epoch and `old` hardly any. Both were submitted with the same range.
fn sizes_by_quality(policy: Policy) -> (u32, u32) {
    let mut scene = Scene::cluster(1, 8);
    scene.policy = policy;
    // Loss 1 / (0.5 k + 0.2) + 0.1, and one near its end.
    let young = (0..5_u32).map(|k| (u64::from(k), 1.0 / (0.5 * f64::from(k) + 0.2) + 0.1));
    let old = (0..5_u32).map(|k| (u64::from(k), 1.0 / (0.001 * f64::from(k) + 0.2) + 0.1));
    scene.job("young").workers(1, 8).0.progress.epoch_losses = young.collect();
    scene.job("old").workers(1, 8).0.progress.epoch_losses = old.collect();
    scene.settle();
    (scene.workers("young"), scene.workers("old"))
}

#[test]
fn slaq_reads_loss_curves_of_live_jobs() {
    let (young, old) = sizes_by_quality(Policy::named(PolicyName::Slaq));
    assert!(young > old, "{young} and {old} workers");
    // Rounds of earlier releases had no curve, and are replayed without one.
    let earlier = Policy {
        fits_losses: false,
        ..Policy::named(PolicyName::Slaq)
    };
    let (young, old) = sizes_by_quality(earlier.clone());
    assert!(young <= old, "{young} and {old} workers");
    let text = serde_json::to_string(&earlier).expect("JSON");
    assert!(!text.contains("fits_losses"), "{text}");
}

/// A job of 400 s could grow from 2 to 4 workers once the other job has left, to run for 222 s.
#[test]
fn new_job_restarts_by_durations_of_its_family() {
    let grows = |of: &str, start_s: Option<f64>| {
        let mut scene = Scene::cluster(1, 4);
        scene.policy = Policy::named(PolicyName::Muster);
        for name in ["a", "b"] {
            scene.job(name).workers(2, 4).steps(4_000);
            scene.find(name).family = Some("f".to_owned());
        }
        let kind = scene.snapshot.nodes[0].gpu_model.clone();
        let speeds = [(2, 10.0), (4, 18.0)];
        let speeds = speeds.map(|(workers, speed)| measured(&kind, (workers, 1), speed));
        know(&mut scene, "f", speeds.to_vec());
        know(&mut scene, "g", speeds.to_vec());
        let mut families = scene.snapshot.families.iter_mut();
        let family = families.find(|known| known.family == of);
        family.expect("known").restarts = start_s.map(|start_s| Restarts {
            starts: 4,
            start_s: 4.0 * start_s,
            ..Restarts::default()
        });
        scene.settle();
        assert_eq!(scene.find("a").size().0, 2);
        scene.find("b").intent = Intent::Cancel;
        scene.settle();
        scene.later(60_000);
        scene.settle();
        scene.find("a").size().0
    };
    assert_eq!(grows("f", None), 4);
    assert_eq!(grows("f", Some(1.0)), 4);
    assert_eq!(grows("f", Some(120.0)), 2);
    assert_eq!(grows("g", Some(120.0)), 2, "another family");
}
