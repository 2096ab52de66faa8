//! A job that runs, and grows onto a node that refuses its pods.

mod scene;

use muster_core::Action;
use muster_core::policies::name::PolicyName;
use muster_core::policy::Policy;
use muster_model::job::JobPhase;
use muster_model::task::{Outcome, TaskState};
use muster_model::wait::Wait;
use scene::{Scene, gone};

/// At work with the two GPUs of the first node; two more came with a second one.
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

/// A second later, with a round. The first node obeys, and the second one refuses whom it is given.
fn second(scene: &mut Scene) -> bool {
    scene.later(1_000);
    let plan = scene.round();
    let taken = scene.snapshot.nodes[1].id;
    for job in &mut scene.snapshot.jobs {
        let joins = |task: &&mut muster_core::snapshot::Task| {
            task.node == taken && task.state == TaskState::Assigned
        };
        for task in job.tasks.iter_mut().filter(joins) {
            task.state = gone(Outcome::refused("OutOfcpu".to_owned()));
        }
    }
    scene.obey();
    let grows = |action: &Action| matches!(action, Action::Resize { join, .. } if !join.is_empty());
    plan.decisions.iter().any(|one| grows(&one.action))
}

/// When it grew within so many seconds, counted from now.
fn grown_at(scene: &mut Scene, seconds: usize) -> Vec<usize> {
    (0..seconds).filter(|_| second(scene)).collect()
}

#[test]
fn who_grows_where_it_is_refused_rests_for_longer_each_time_and_runs_on() {
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
fn growth_that_came_up_is_the_end_of_that() {
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

/// Its start is another matter than its growth.
#[test]
fn refused_growth_is_not_counted_against_a_later_start() {
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
        // What its owner reads.
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
        // It is told the same while it waits.
        let again = scene.round();
        assert!(again.is_empty(), "{again:#?}");
    }
}
