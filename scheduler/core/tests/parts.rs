//! GPU parts (MIG instances) are GPUs of a kind of their own. A task gets one, because a process
//! sees no second one.

use crate::scene::Scene;
use muster_core::policies::name::PolicyName;
use muster_core::policy::Policy;
use muster_core::snapshot::ClusterSnapshot;
use muster_core::{apply_change, check, plan};
use muster_model::job::JobPhase;
use muster_model::wait::{Change, Wait, Waiting};

const SMALL: &str = "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb";
const LARGE: &str = "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb";

/// Returns nodes of these numbers of GPUs and models.
fn cluster(share: PolicyName, nodes: &[(u32, &str)]) -> Scene {
    let mut scene = Scene::cluster(0, 0);
    scene.policy = Policy::named(share);
    for &(gpus, model) in nodes {
        scene.add_nodes(1, gpus);
        let added = scene.snapshot.nodes.last_mut().expect("just added");
        added.gpu_model = model.to_owned();
    }
    scene
}

/// Returns the models on which a job's workers run, without duplicates.
fn models(snapshot: &ClusterSnapshot, name: &str) -> Vec<String> {
    let job = snapshot.jobs.iter().find(|job| job.name == name);
    let tasks = &job.expect("a job of that name").tasks;
    let workers = tasks.iter().filter(|task| task.is_worker());
    let mut models: Vec<String> = workers
        .map(|task| {
            let mut nodes = snapshot.nodes.iter();
            let node = nodes.find(|node| node.id == task.node);
            node.expect("a node").gpu_model.clone()
        })
        .collect();
    models.sort();
    models.dedup();
    models
}

fn told(scene: &mut Scene, name: &str) -> Waiting {
    scene.find(name).waiting.clone().expect("it waits")
}

#[test]
fn task_of_two_gpus_is_placed_on_whole_gpus() {
    for &share in PolicyName::ALL {
        let mut scene = cluster(share, &[(7, SMALL), (2, LARGE), (2, "NVIDIA H100")]);
        scene.job("two").gpus(2).ps_shards(0, 0);
        scene.round();
        assert_ne!(scene.phase("two"), JobPhase::Queued, "{share:?}");
        assert_eq!(models(&scene.snapshot, "two"), ["NVIDIA H100"], "{share:?}");
    }
}

/// Several MIG profiles of one machine are several nodes, each of a kind of its own.
#[test]
fn gang_gets_one_part_of_one_kind_per_task() {
    for &share in PolicyName::ALL {
        let mut scene = cluster(share, &[(2, SMALL), (3, LARGE)]);
        scene.job("gang").workers(3, 3).ps_shards(0, 0);
        scene.round();
        assert_ne!(scene.phase("gang"), JobPhase::Queued, "{share:?}");
        assert_eq!(models(&scene.snapshot, "gang"), [LARGE], "{share:?}");
        let tasks = scene.find("gang").tasks.clone();
        assert!(tasks.iter().all(|task| task.gpus.len() == 1), "{share:?}");
    }
}

#[test]
fn job_of_several_gpus_on_parts_gets_smallest_change() {
    let shares = PolicyName::ALL.iter();
    for (&share, gpus) in shares.flat_map(|share| [(share, 2), (share, 4)]) {
        let mut scene = cluster(share, &[(7, SMALL)]);
        scene.job("wide").gpus(gpus).ps_shards(0, 0);
        scene.round();
        assert_eq!(scene.phase("wide"), JobPhase::Queued, "{share:?}");
        let told = told(&mut scene, "wide");
        let expected = Wait::NoMatchingNodes {
            needed_gpus_per_worker: gpus,
            largest_node_gpus: 1,
            parts: true,
            pods: false,
            image: false,
            forbidden: Vec::new(),
        };
        assert_eq!(told.why, expected, "{share:?}");
        let change = Some(Change::LowerGpusPerWorker { to: 1 });
        assert_eq!(told.smallest_change, change, "{share:?}");
    }
}

/// The smallest change never adds GPUs that the job cannot use.
#[test]
fn added_gpus_are_whole_when_parts_do_not_help() {
    let mut scene = cluster(PolicyName::Muster, &[(7, SMALL), (1, "NVIDIA H100")]);
    let job = scene
        .job("pairs")
        .workers(2, 2)
        .gpus(2)
        .ps_shards(0, 0)
        .0
        .id;
    let add = Change::AddGpus { gpus: 4 };
    scene.snapshot = apply_change(&scene.snapshot, job, &add).expect("it names what is there");
    scene.round();
    assert_ne!(scene.phase("pairs"), JobPhase::Queued);
    assert_eq!(models(&scene.snapshot, "pairs"), ["NVIDIA H100"]);
}

#[test]
fn check_rejects_two_parts_for_one_task() {
    let mut scene = cluster(PolicyName::Muster, &[(2, "NVIDIA H100")]);
    scene.job("two").gpus(2).ps_shards(0, 0);
    let (plan, _) = plan(&scene.snapshot, &scene.policy);
    assert!(check(&scene.snapshot, &plan).is_empty());
    scene.snapshot.nodes[0].gpu_model = SMALL.to_owned();
    let broken = check(&scene.snapshot, &plan);
    assert!(
        broken
            .iter()
            .any(|one| one.to_string().contains("2 parts of GPUs")),
        "{broken:?}"
    );
}
