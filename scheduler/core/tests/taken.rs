//! GPUs that somebody outside of Muster has are given to nobody, whatever else of their node is.

mod scene;

use muster_core::policies::name::PolicyName;
use muster_core::policy::Policy;
use muster_core::snapshot::Snapshot;
use muster_model::job::JobPhase;
use muster_model::wait::Wait;
use scene::Scene;
use std::collections::BTreeSet;

/// One node of so many GPUs, some of which others have.
fn node(share: PolicyName, gpus: u32, taken: &[u32]) -> Scene {
    let mut scene = Scene::cluster(1, gpus);
    scene.policy = Policy::named(share);
    scene.snapshot.nodes[0].taken = taken.to_vec();
    scene
}

/// Those that jobs hold.
fn held(snapshot: &Snapshot) -> BTreeSet<u32> {
    let tasks = snapshot.jobs.iter().flat_map(|job| &job.tasks);
    let held = tasks.filter(|task| task.state.holds_gpus());
    held.flat_map(|task| task.gpus.iter().copied()).collect()
}

#[test]
fn a_job_gets_what_others_have_left_and_no_more() {
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
fn a_gang_that_needs_what_others_have_waits_until_they_have_gone() {
    for &share in PolicyName::ALL {
        let mut scene = node(share, 4, &[2, 3]);
        scene.job("gang").workers(3, 3).ps_shards(0, 0);
        scene.settle();
        let waiting = scene.find("gang").waiting.clone().expect("it waits");
        let expected = Wait::ExceedsCluster {
            needed_gpus: 3,
            cluster_gpus: 2,
        };
        assert_eq!(waiting.why, expected, "{share:?}");
        scene.snapshot.nodes[0].taken.clear();
        scene.settle();
        assert_eq!(scene.phase("gang"), JobPhase::Running, "{share:?}");
    }
}

/// Room is made on what Muster has, whatever its numbers are.
#[test]
fn who_is_more_urgent_gets_what_another_job_held_beside_others() {
    for share in [PolicyName::Muster, PolicyName::Fifo, PolicyName::Optimus] {
        let mut scene = node(share, 4, &[]);
        scene.job("first").workers(2, 2).ps_shards(0, 0);
        scene.settle();
        // The others' are the lowest.
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
