//! GPUs in use outside Muster are never allocated.

use crate::scene::Scene;
use muster_core::policies::name::PolicyName;
use muster_core::policy::Policy;
use muster_core::snapshot::ClusterSnapshot;
use muster_model::job::JobPhase;
use muster_model::wait::Wait;
use std::collections::BTreeSet;

/// Returns one node of `gpus` GPUs, of which `taken` are in use outside Muster.
fn node(share: PolicyName, gpus: u32, taken: &[u32]) -> Scene {
    let mut scene = Scene::cluster(1, gpus);
    scene.policy = Policy::named(share);
    scene.snapshot.nodes[0].taken = taken.to_vec();
    scene
}

/// Returns the GPUs that jobs hold.
fn held(snapshot: &ClusterSnapshot) -> BTreeSet<u32> {
    let tasks = snapshot.jobs.iter().flat_map(|job| &job.tasks);
    let held = tasks.filter(|task| task.state.holds_gpus());
    held.flat_map(|task| task.gpus.iter().copied()).collect()
}

#[test]
fn job_uses_only_gpus_not_in_external_use() {
    for &share in PolicyName::ALL {
        let mut scene = node(share, 4, &[1, 3]);
        scene.job("wide").workers(1, 4).ps_shards(0, 0);
        scene.settle();
        assert_eq!(scene.phase("wide"), JobPhase::Running, "{share:?}");
        let held = held(&scene.snapshot);
        assert!(
            held.is_subset(&BTreeSet::from([0, 2])),
            "{share:?} {held:?}"
        );
    }
}

#[test]
fn gang_waits_until_external_use_of_gpus_ends() {
    for &share in PolicyName::ALL {
        let mut scene = node(share, 4, &[2, 3]);
        scene.job("gang").workers(3, 3).ps_shards(0, 0);
        scene.settle();
        let waiting = scene.find("gang").waiting.clone().expect("it waits");
        let expected = Wait::ExceedsCluster {
            needed_gpus: 3,
            cluster_gpus: 2,
            forbidden: Vec::new(),
        };
        assert_eq!(waiting.why, expected, "{share:?}");
        scene.snapshot.nodes[0].taken.clear();
        scene.settle();
        assert_eq!(scene.phase("gang"), JobPhase::Running, "{share:?}");
    }
}

/// Preemption works by GPUs that Muster may use, independent of their indices.
#[test]
fn urgent_job_preempts_on_partly_external_node() {
    for share in [PolicyName::Muster, PolicyName::Fifo, PolicyName::Optimus] {
        let mut scene = node(share, 4, &[]);
        scene.job("first").workers(2, 2).ps_shards(0, 0);
        scene.settle();
        // The externally used GPUs have the lowest indices.
        let tasks = &mut scene.find("first").tasks;
        assert_eq!(tasks.len(), 2);
        for (task, gpu) in tasks.iter_mut().zip([2, 3]) {
            task.gpus = vec![gpu];
        }
        scene.snapshot.nodes[0].taken = vec![0, 1];
        let urgent = scene.job("urgent").workers(2, 2).ps_shards(0, 0);
        urgent.priority(100);
        scene.later(60_000);
        scene.settle();
        assert_eq!(scene.phase("urgent"), JobPhase::Running, "{share:?}");
        assert_eq!(held(&scene.snapshot), BTreeSet::from([2, 3]), "{share:?}");
    }
}
