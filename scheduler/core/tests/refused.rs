//! A running job that grows onto a node which refuses its pods.

use crate::scene::{Scene, gone};
use muster_core::Action;
use muster_core::policies::name::PolicyName;
use muster_core::policy::Policy;
use muster_model::job::JobPhase;
use muster_model::task::{Outcome, TaskState};
use muster_model::wait::Wait;

/// Returns a job that runs on both GPUs of the first node. A second node of two GPUs was added.
fn scene(share: PolicyName) -> Scene {
    let mut scene = Scene::cluster(1, 2);
    scene.policy = Policy::named(share);
    let job = scene.job("a").workers(1, 4).ps_shards(0, 0).in_place();
    job.0.progress.max_steps = Some(100_000_000);
    scene.settle();
    scene.measured("a", 1, 5.0);
    scene.measured("a", 2, 10.0);
    scene.add_nodes(1, 2);
    for node in &mut scene.snapshot.nodes {
        node.pods = Some(true);
    }
    scene
}

/// Advances by a second and one round. The first node obeys, the second one refuses its new tasks.
/// Returns whether the job grew.
fn second(scene: &mut Scene) -> bool {
    scene.later(1_000);
    let plan = scene.round();
    let taken = scene.snapshot.nodes[1].id;
    for job in &mut scene.snapshot.jobs {
        for task in &mut job.tasks {
            if task.node == taken && task.state == TaskState::Assigned {
                task.state = gone(Outcome::refused("OutOfcpu".to_owned()));
            }
        }
    }
    scene.obey();
    plan.decisions
        .iter()
        .any(|one| matches!(&one.action, Action::Resize { join, .. } if !join.is_empty()))
}

/// Returns the seconds, counted from now, in which the job grew.
fn grown_at(scene: &mut Scene, seconds: usize) -> Vec<usize> {
    (0..seconds).filter(|_| second(scene)).collect()
}

#[test]
fn refused_growth_backs_off_longer_while_job_runs() {
    for &share in PolicyName::ALL {
        let mut scene = scene(share);
        let grown = grown_at(&mut scene, 7_200);
        if matches!(share, PolicyName::Muster | PolicyName::Optimus) {
            assert!(grown.len() > 5, "{share:?} {grown:?}");
        }
        let rests: Vec<usize> = grown.windows(2).map(|two| two[1] - two[0]).collect();
        assert!(
            rests
                .windows(2)
                .all(|two| two[1] >= (two[0] * 2 - 2).min(299)),
            "{share:?} {rests:?}"
        );
        assert!(grown.len() < 40, "{share:?}: every five minutes at most");
        assert_eq!(scene.phase("a"), JobPhase::Running);
        assert_eq!(scene.find("a").failures, 0, "{share:?}: it runs well");
    }
}

#[test]
fn successful_growth_clears_the_refusals() {
    let mut scene = scene(PolicyName::Muster);
    assert!(grown_at(&mut scene, 1_200).len() > 3);
    assert!(scene.find("a").put_off > 3);
    let mut rounds = 0;
    while scene.workers("a") < 4 || scene.find("a").is_resizing() {
        scene.later(1_000);
        scene.round();
        scene.obey();
        rounds += 1;
        assert!(rounds < 400, "it grows in the end");
    }
    assert_eq!(scene.find("a").put_off, 0);
}

/// Refusals of growth and refusals of a start are counted apart.
#[test]
fn refused_growth_is_not_charged_to_a_later_start() {
    let mut scene = scene(PolicyName::Muster);
    grown_at(&mut scene, 7_200);
    assert!(scene.find("a").put_off > 8);
    for task in &mut scene.find("a").tasks {
        task.state = gone(Outcome::NodeLost);
    }
    scene.round();
    for times in 1..=8 {
        while scene.phase("a") == JobPhase::Queued {
            scene.later(1_000);
            scene.round();
        }
        for task in &mut scene.find("a").tasks {
            task.state = TaskState::Released {
                outcome: Outcome::refused("OutOfcpu".to_owned()),
            };
        }
        scene.round();
        let job = scene.find("a");
        assert_eq!((job.failures, job.put_off), (0, times));
        // The wait reason for the owner.
        let told = job.waiting.clone().expect("it waits").why;
        let Wait::BackingOff {
            refused: Some(refused),
            ..
        } = &told
        else {
            panic!("{told:?}")
        };
        assert_eq!(
            (refused.times, refused.message.as_str()),
            (times, "OutOfcpu")
        );
        let nodes = scene.snapshot.nodes.iter();
        assert!(
            nodes
                .map(|node| &node.name)
                .any(|name| *name == refused.node)
        );
        // The reason is not written again while the job waits.
        let again = scene.round();
        assert!(again.is_empty(), "{again:#?}");
    }
}
