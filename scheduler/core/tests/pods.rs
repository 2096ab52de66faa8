//! Jobs whose tasks must be pods run only on nodes whose tasks are pods, under every policy.

use crate::scene::{JobIn, Scene};
use muster_core::policies::name::PolicyName;
use muster_core::policy::{Policy, Slicing};
use muster_core::snapshot::SnapshotJob;
use muster_core::{Action, JobDecision, RoundPlan, Violation, check, plan};
use muster_model::job::{JobPhase, JobState};
use muster_model::task::{Outcome, TaskState};
use muster_model::wait::{Change, Wait};

/// Returns nodes of these numbers of GPUs, with tasks as pods or as processes.
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

/// Returns nodes of these numbers of GPUs whose tasks are processes, with or without images.
fn processes(share: PolicyName, nodes: &[(u32, bool)]) -> Scene {
    let all: Vec<(u32, bool)> = nodes.iter().map(|&(gpus, _)| (gpus, false)).collect();
    let mut scene = cluster(share, &all);
    for (node, &(_, images)) in scene.snapshot.nodes.iter_mut().zip(nodes) {
        node.images = images;
    }
    scene
}

fn in_image<'s>(job: JobIn<'s>) -> JobIn<'s> {
    job.0.image = true;
    job
}

#[test]
fn job_in_image_gets_nodes_that_run_images() {
    for &share in PolicyName::ALL {
        let mut scene = processes(share, &[(8, false), (4, true), (8, false)]);
        in_image(scene.job("own")).workers(4, 4).ps_shards(2, 2);
        scene.round();
        assert_ne!(scene.phase("own"), JobPhase::Queued, "{share:?}");
        let able = scene.snapshot.nodes[1].id;
        let job = scene.find("own").clone();
        assert!(job.tasks.iter().all(|task| task.node == able), "{share:?}");
        // A pod has its own image anyway.
        let mut scene = cluster(share, &[(8, false), (4, true)]);
        in_image(scene.job("own")).workers(4, 4).ps_shards(0, 0);
        scene.round();
        let job = scene.find("own").clone();
        assert!(is_in_pods(&scene, &job), "{share:?}: {:?}", job.tasks);
    }
}

#[test]
fn job_in_image_without_able_node_gets_wait_reason() {
    for &share in PolicyName::ALL {
        let mut scene = processes(share, &[(8, false)]);
        in_image(scene.job("own")).gpus(2).ps_shards(0, 0);
        scene.round();
        assert_eq!(scene.phase("own"), JobPhase::Queued, "{share:?}");
        let told = scene.find("own").waiting.clone().expect("it waits");
        let is_so = matches!(
            told.why,
            Wait::NoMatchingNodes {
                image: true,
                pods: false,
                ..
            }
        );
        assert!(is_so, "{share:?}: {:?}", told.why);
        let said = told.why.to_string();
        assert!(said.contains("can run images"), "{said}");
        let adds = matches!(told.smallest_change, Some(Change::AddGpus { .. }));
        assert!(!adds, "more of what is there would not help");
    }
}

/// Whether all tasks of the job are on nodes with pods.
fn is_in_pods(scene: &Scene, job: &SnapshotJob) -> bool {
    let mut tasks = job.tasks.iter();
    !job.tasks.is_empty()
        && tasks.all(|task| {
            let mut nodes = scene.snapshot.nodes.iter();
            nodes.any(|node| node.id == task.node && node.has_pods())
        })
}

#[test]
fn job_in_pods_gets_pod_nodes_for_workers_and_shards() {
    for &share in PolicyName::ALL {
        // The other nodes have more GPUs and more CPU for shards.
        let mut scene = cluster(share, &[(8, false), (4, true), (8, false)]);
        in_pods(scene.job("own")).workers(4, 4).ps_shards(2, 2);
        scene.round();
        assert_ne!(scene.phase("own"), JobPhase::Queued, "{share:?}");
        let job = scene.find("own").clone();
        assert!(is_in_pods(&scene, &job), "{share:?}: {:?}", job.tasks);
    }
}

#[test]
fn job_in_pods_grows_only_on_pod_nodes() {
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
fn job_without_pods_runs_on_any_node() {
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
fn job_in_pods_without_pod_nodes_gets_wait_reason() {
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
            image: false,
            forbidden: Vec::new(),
        };
        assert_eq!(told.why, expected, "{share:?}");
        let said = told.why.to_string();
        assert!(said.contains("whose tasks are pods"), "{said}");
        let adds = matches!(told.smallest_change, Some(Change::AddGpus { .. }));
        assert!(!adds, "more of what is there would not help");
    }
}

#[test]
fn wait_reason_names_largest_pod_node() {
    let mut scene = cluster(PolicyName::Muster, &[(8, false), (1, true)]);
    in_pods(scene.job("own")).gpus(2).ps_shards(0, 0);
    scene.round();
    let told = scene.find("own").waiting.clone().expect("it waits");
    assert_eq!(
        told.why.to_string(),
        "each worker needs 2 GPUs on one node whose tasks are pods; the largest node has 1"
    );
}

/// During a rollout, executors of the old version do not report whether their tasks are pods.
#[test]
fn executor_rollout_keeps_gang_and_pods_use_new_executors() {
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
        // The first of its two nodes and the free node have a new executor.
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

/// The place of the policy is then not usable.
#[test]
fn job_in_pods_avoids_nodes_of_unknown_runtime() {
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
fn check_rejects_job_in_pods_on_other_nodes() {
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

#[test]
fn job_waiting_for_pods_names_only_holders_of_pods() {
    let mut scene = cluster(PolicyName::Muster, &[(2, true), (8, false)]);
    in_pods(scene.job("first")).workers(2, 2).ps_shards(0, 0);
    scene.job("other").workers(1, 1).gpus(4).ps_shards(0, 0);
    scene.settle();
    in_pods(scene.job("second")).workers(2, 2).ps_shards(0, 0);
    scene.round();
    let told = scene.find("second").waiting.clone().expect("it waits");
    let first = scene.find("first").id;
    let expected = Wait::WaitingForGpus {
        needed_gpus: 2,
        free_gpus: 0,
        kept_gpus: 0,
        occupied_gpus: 0,
        held_by: vec![first],
        forbidden: Vec::new(),
    };
    assert_eq!(told.why, expected);
}

/// Runs a round whose pod the node refuses. Returns the phase and the milliseconds of the back-off.
fn refused(scene: &mut Scene) -> (JobPhase, i64) {
    scene.round();
    let job = scene.find("own");
    let outcome = Outcome::refused("OutOfcpu: Node didn't have enough resource: cpu".to_owned());
    for task in &mut job.tasks {
        let outcome = outcome.clone();
        task.state = TaskState::Released { outcome };
    }
    scene.round();
    let now_ms = scene.snapshot.now_ms;
    let until_ms = scene.find("own").not_before_ms.unwrap_or(now_ms);
    scene.later(until_ms - now_ms);
    (scene.phase("own"), until_ms - now_ms)
}

#[test]
fn refused_job_backs_off_longer_and_finally_fails() {
    let mut scene = cluster(PolicyName::Muster, &[(2, true)]);
    in_pods(scene.job("own"))
        .workers(1, 1)
        .ps_shards(0, 0)
        .retries(2);
    // Pods outside Muster may take minutes to leave. The job is not charged for that.
    let mut waited_ms = 0;
    for times in 0..8 {
        let (phase, ms) = refused(&mut scene);
        assert_eq!((phase, ms), (JobPhase::Queued, 1_000 << times));
        assert_eq!(scene.find("own").failures, 0);
        waited_ms += ms;
    }
    assert!(waited_ms > 240_000);
    // A job that runs starts to count again.
    scene.settle();
    assert_eq!(scene.phase("own"), JobPhase::Running);
    let job = scene.find("own");
    let outcome = Outcome::NodeLost;
    job.tasks[0].state = TaskState::Released { outcome };
    scene.round();
    for _ in 0..8 {
        assert_eq!(refused(&mut scene).0, JobPhase::Queued);
    }
    assert_eq!(scene.find("own").failures, 0);
    // Refusals that persist are charged to the job, with the node's message as the reason.
    for failures in 1..=2 {
        assert_eq!(refused(&mut scene).0, JobPhase::Queued);
        assert_eq!(scene.find("own").failures, failures);
    }
    assert_eq!(refused(&mut scene).0, JobPhase::Failed);
    let JobState::Failed { reason } = scene.find("own").state.clone() else {
        panic!("it failed")
    };
    assert!(
        reason.starts_with("worker-0 was refused by its node: OutOfcpu"),
        "{reason}"
    );
}

/// Returns the settings with time slicing.
fn slicing() -> Policy {
    Policy {
        slicing: Some(Slicing {
            quantum_ms: 60_000,
            suspended_per_gpu: 3,
        }),
        ..Policy::named(PolicyName::Muster)
    }
}

/// Whether the running job is suspended for the waiting one an hour later. `nodes` as for
/// [`cluster`].
fn is_turned_out(nodes: &[(u32, bool)]) -> bool {
    let mut scene = cluster(PolicyName::Muster, nodes);
    scene.policy = slicing();
    scene.job("first").workers(4, 4).ps_shards(0, 0);
    scene.settle();
    assert_eq!(scene.phase("first"), JobPhase::Running);
    scene.later(3_600_000);
    scene.job("second").workers(4, 4).ps_shards(0, 0);
    scene.snapshot.leave_pods_out_of_turns();
    scene.settle();
    match scene.phase("first") {
        JobPhase::Suspended => true,
        phase => {
            assert_eq!(phase, JobPhase::Running);
            assert_eq!(scene.phase("second"), JobPhase::Queued);
            false
        }
    }
}

#[test]
fn jobs_in_pods_are_not_time_sliced() {
    assert!(is_turned_out(&[(4, false)]));
    assert!(!is_turned_out(&[(4, true)]));
}

#[test]
fn suspendability_depends_on_possible_nodes() {
    let mut scene = cluster(PolicyName::Muster, &[(2, true), (2, false)]);
    scene.job("waits").workers(1, 1).ps_shards(0, 0);
    in_pods(scene.job("own")).workers(1, 1).ps_shards(0, 0);
    let mut both = scene.snapshot.clone();
    both.leave_pods_out_of_turns();
    let suspends: Vec<_> = both.jobs.iter().map(|job| job.suspends).collect();
    assert_eq!(
        suspends,
        [true, false],
        "where both are, it may come to either"
    );

    let mut only = scene.snapshot.clone();
    only.nodes.retain(|node| node.has_pods());
    only.leave_pods_out_of_turns();
    assert!(only.jobs.iter().all(|job| !job.suspends));

    // A lost node is no possible place.
    let mut lost = scene.snapshot.clone();
    lost.nodes[1].up = false;
    assert!(!lost.nodes[1].has_pods());
    lost.leave_pods_out_of_turns();
    assert!(lost.jobs.iter().all(|job| !job.suspends));

    // Without nodes, all jobs count as suspendable.
    let mut none = scene.snapshot.clone();
    none.nodes.clear();
    none.leave_pods_out_of_turns();
    assert!(none.jobs.iter().all(|job| job.suspends));

    // A job that was suspended before its node reported pods keeps its processes and may resume.
    scene.job("still").workers(2, 2).ps_shards(0, 0);
    scene.settle();
    for node in &mut scene.snapshot.nodes {
        node.pods = Some(true);
    }
    scene.find("still").state = JobState::Suspended;
    scene.snapshot.leave_pods_out_of_turns();
    assert!(scene.find("still").suspends && !scene.find("waits").suspends);
}

#[test]
fn check_rejects_suspension_of_a_pod() {
    let mut scene = cluster(PolicyName::Muster, &[(4, true)]);
    scene.job("first").workers(4, 4).ps_shards(0, 0);
    scene.settle();
    let job = scene.find("first").clone();
    let plan = RoundPlan {
        decisions: vec![JobDecision {
            job: job.id,
            expected_revision: job.revision,
            action: Action::Suspend { why: String::new() },
        }],
        ..RoundPlan::default()
    };
    let what = "some of whose tasks are pods";
    let expected = Violation::WrongTurn { job: job.id, what };
    assert_eq!(check(&scene.snapshot, &plan), [expected]);
}
