//! Jobs whose tasks must be pods run on nodes whose tasks are pods, and on no others, whatever the policy.

mod scene;

use muster_core::policies::name::PolicyName;
use muster_core::policy::Policy;
use muster_core::snapshot::Job;
use muster_core::{check, plan};
use muster_model::job::JobPhase;
use muster_model::wait::{Change, Wait};
use scene::{JobIn, Scene};

/// Nodes of so many GPUs; of pods or of processes.
fn cluster(share: PolicyName, nodes: &[(u32, bool)]) -> Scene {
    let mut scene = Scene::cluster(0, 0);
    scene.policy = Policy::named(share);
    for &(gpus, pods) in nodes {
        scene.add_nodes(1, gpus);
        scene.snapshot.nodes.last_mut().expect("just added").pods = Some(pods);
    }
    scene
}

fn in_pods<'s>(job: JobIn<'s>) -> JobIn<'s> {
    job.0.pods = true;
    job
}

/// Whether all of its tasks are on nodes of pods.
fn is_in_pods(scene: &Scene, job: &Job) -> bool {
    let is_of_pods = |id| {
        let mut nodes = scene.snapshot.nodes.iter();
        nodes.any(|node| node.id == id && node.has_pods())
    };
    !job.tasks.is_empty() && job.tasks.iter().all(|task| is_of_pods(task.node))
}

#[test]
fn a_gang_that_needs_pods_gets_them_its_shards_too() {
    for &share in PolicyName::ALL {
        // The other nodes have more GPUs, and more room for shards.
        let mut scene = cluster(share, &[(8, false), (4, true), (8, false)]);
        in_pods(scene.job("own")).workers(4, 4).ps_shards(2, 2);
        scene.round();
        assert_ne!(scene.phase("own"), JobPhase::Queued, "{share:?}");
        let job = scene.find("own").clone();
        assert!(is_in_pods(&scene, &job), "{share:?}: {:?}", job.tasks);
    }
}

#[test]
fn who_grows_while_it_runs_grows_within_nodes_of_pods() {
    let mut scene = cluster(PolicyName::Muster, &[(2, true), (8, false)]);
    in_pods(scene.job("own")).workers(1, 8).ps_shards(0, 0);
    for _ in 0..4 {
        scene.round();
        let job = scene.find("own").clone();
        assert!(is_in_pods(&scene, &job), "{:?}", job.tasks);
    }
    assert_eq!(scene.find("own").tasks.len(), 2);
}

#[test]
fn who_needs_no_pods_runs_anywhere() {
    for &share in PolicyName::ALL {
        let mut scene = cluster(share, &[(2, true), (2, false)]);
        for name in ["a", "b"] {
            scene.job(name).workers(2, 2).ps_shards(0, 0);
        }
        scene.round();
        for name in ["a", "b"] {
            assert_ne!(scene.phase(name), JobPhase::Queued, "{share:?}");
        }
    }
}

#[test]
fn who_finds_no_nodes_of_pods_is_told_so() {
    for &share in PolicyName::ALL {
        let mut scene = cluster(share, &[(8, false)]);
        in_pods(scene.job("own")).gpus(2).ps_shards(0, 0);
        scene.round();
        assert_eq!(scene.phase("own"), JobPhase::Queued, "{share:?}");
        let told = scene.find("own").waiting.clone().expect("it waits");
        let expected = Wait::NoMatchingNodes {
            needed_gpus_per_worker: 2,
            largest_node_gpus: 0,
            parts: false,
            pods: true,
        };
        assert_eq!(told.why, expected, "{share:?}");
        let said = told.why.to_string();
        assert!(said.contains("whose tasks are pods"), "{said}");
        let adds = matches!(told.smallest_change, Some(Change::AddGpus { .. }));
        assert!(!adds, "more of what is there would not help");
    }
}

#[test]
fn one_that_is_too_small_is_not_taken_for_one_that_is_none() {
    let mut scene = cluster(PolicyName::Muster, &[(8, false), (1, true)]);
    in_pods(scene.job("own")).gpus(2).ps_shards(0, 0);
    scene.round();
    let told = scene.find("own").waiting.clone().expect("it waits");
    assert_eq!(
        told.why.to_string(),
        "each worker needs 2 GPUs on one node whose tasks are pods; the largest node has 1"
    );
}

/// While executors are replaced, some do not say yet that their tasks are pods.
#[test]
fn a_gang_keeps_its_place_while_executors_are_replaced_and_who_needs_pods_goes_to_the_new_ones() {
    for &share in PolicyName::ALL {
        let mut scene = cluster(share, &[(2, true), (2, true), (2, true)]);
        for node in &mut scene.snapshot.nodes {
            node.pods = None;
        }
        scene.job("gang").workers(2, 4).ps_shards(0, 0);
        for _ in 0..3 {
            scene.round();
        }
        let before = scene.find("gang").clone();
        assert_ne!(scene.phase("gang"), JobPhase::Queued, "{share:?}");
        let held: Vec<_> = before.tasks.iter().map(|task| task.node).collect();
        // Of its two nodes the first has a new executor, and so has the one that is free.
        for node in &mut scene.snapshot.nodes {
            node.pods = (node.id == held[0] || !held.contains(&node.id)).then_some(true);
        }
        in_pods(scene.job("own")).workers(2, 2).ps_shards(0, 0);
        for _ in 0..3 {
            scene.snapshot.now_ms += 600_000;
            scene.round();
        }
        let after = scene.find("gang").clone();
        assert_eq!(after.revision, before.revision, "{share:?}");
        let own = scene.find("own").clone();
        assert!(is_in_pods(&scene, &own), "{share:?}: {own:?}");
    }
}

/// What the policy gave it is no place for it then.
#[test]
fn who_needs_pods_goes_past_nodes_that_do_not_say_what_theirs_are() {
    for &share in PolicyName::ALL {
        for first in [true, false] {
            let mut scene = cluster(share, &[(2, true), (2, true)]);
            scene.snapshot.nodes[usize::from(!first)].pods = None;
            in_pods(scene.job("own")).workers(2, 2).ps_shards(0, 0);
            scene.round();
            let own = scene.find("own").clone();
            assert!(is_in_pods(&scene, &own), "{share:?}: {own:?}");
        }
    }
}

#[test]
fn the_check_lets_nobody_run_where_it_cannot() {
    let mut scene = cluster(PolicyName::Muster, &[(2, true)]);
    in_pods(scene.job("own")).ps_shards(1, 1);
    let (plan, _) = plan(&scene.snapshot, &scene.policy);
    assert!(check(&scene.snapshot, &plan).is_empty());
    scene.snapshot.nodes[0].pods = Some(false);
    let broken = check(&scene.snapshot, &plan);
    let told = broken
        .iter()
        .filter(|one| one.to_string().contains("must be a pod"));
    assert_eq!(told.count(), 2, "its worker and its shard: {broken:?}");
}
