//! Nodes that do not start their tasks in time: the tasks are given up and their jobs move to other
//! nodes.

use crate::scene::Scene;
use muster_core::policy::StartLimit;
use muster_core::{Action, RoundPlan};
use muster_model::id::NodeId;
use muster_model::job::{JobPhase, JobState};
use muster_model::task::TaskState;
use muster_model::wait::Wait;

const LIMIT_MS: i64 = 300_000;

/// Returns nodes of one GPU whose tasks are processes or pods.
fn scene(nodes: u32, pods: Option<bool>) -> Scene {
    let mut scene = Scene::cluster(nodes, 1);
    scene.policy.start_limit = Some(StartLimit::default());
    for node in &mut scene.snapshot.nodes {
        node.pods = pods;
    }
    scene
}

fn given_up(plan: &RoundPlan) -> usize {
    let tasks = plan.decisions.iter().map(|one| match &one.action {
        Action::GiveUp { tasks, .. } => tasks.len(),
        _ => 0,
    });
    tasks.sum()
}

fn node_of(scene: &mut Scene, job: &str) -> NodeId {
    scene.find(job).tasks[0].node
}

/// Runs rounds, a second apart, until the job is in this phase. The node starts nothing.
fn until(scene: &mut Scene, job: &str, phase: JobPhase) {
    for _ in 0..100_000 {
        if scene.phase(job) == phase {
            return;
        }
        scene.later(1_000);
        scene.round();
    }
    panic!("{:#?}", scene.find(job));
}

#[test]
fn job_leaves_node_that_does_not_start_it_in_time() {
    let mut scene = scene(2, Some(false));
    scene.job("a").workers(1, 1).ps_shards(0, 0);
    scene.round();
    let deaf = node_of(&mut scene, "a");
    scene.later(LIMIT_MS - 1);
    assert_eq!(given_up(&scene.round()), 0, "it is in time");
    scene.later(1);
    assert_eq!(given_up(&scene.round()), 1);
    scene.round();
    assert_eq!(scene.phase("a"), JobPhase::Queued);
    let told = scene.find("a").waiting.clone().expect("it waits").why;
    let Wait::BackingOff {
        refused: Some(refused),
        ..
    } = &told
    else {
        panic!("{told:?}");
    };
    assert_eq!(refused.message, "its node has not started it within 300 s");
    until(&mut scene, "a", JobPhase::Starting);
    let next = node_of(&mut scene, "a");
    assert_ne!(next, deaf, "the node rests");
    scene.obey();
    scene.round();
    assert_eq!(scene.phase("a"), JobPhase::Running);
    assert_eq!(scene.find("a").failures, 0, "it is the node's fault");
}

#[test]
fn pods_and_unknown_runtimes_have_longer_start_limit() {
    for pods in [Some(true), None] {
        let mut scene = scene(1, pods);
        scene.job("a").workers(1, 1).ps_shards(0, 0);
        scene.round();
        scene.later(12 * LIMIT_MS - 1);
        assert_eq!(given_up(&scene.round()), 0, "{pods:?}");
        scene.later(1);
        assert_eq!(given_up(&scene.round()), 1, "{pods:?}");
    }
}

/// Its node pulls the image before the start.
#[test]
fn process_in_image_has_longer_start_limit() {
    let mut scene = scene(1, Some(false));
    scene.snapshot.nodes[0].images = true;
    scene.job("a").workers(1, 1).ps_shards(0, 0).0.image = true;
    scene.round();
    scene.later(12 * LIMIT_MS - 1);
    assert_eq!(given_up(&scene.round()), 0);
    scene.later(1);
    assert_eq!(given_up(&scene.round()), 1);
}

#[test]
fn job_that_starts_nowhere_fails_with_reason() {
    let mut scene = scene(1, Some(false));
    scene.job("a").workers(1, 1).ps_shards(0, 0).retries(1);
    until(&mut scene, "a", JobPhase::Failed);
    let state = scene.find("a").state.clone();
    let JobState::Failed { reason } = state else {
        panic!("{state:?}");
    };
    assert!(
        reason.contains("has not started it within 300 s"),
        "{reason}"
    );
    let days = (scene.snapshot.now_ms - 1_000_000) / 86_400_000;
    assert!(days < 1, "{days} days");
}

#[test]
fn node_rests_longer_after_each_late_start() {
    let mut scene = scene(1, Some(false));
    scene.job("a").workers(1, 1).ps_shards(0, 0);
    let mut rests = Vec::new();
    for _ in 0..3 {
        until(&mut scene, "a", JobPhase::Starting);
        until(&mut scene, "a", JobPhase::Queued);
        let since_ms = scene.snapshot.now_ms;
        until(&mut scene, "a", JobPhase::Starting);
        rests.push((scene.snapshot.now_ms - since_ms) / 1_000);
    }
    assert!(
        (298..=301).contains(&rests[0])
            && (598..=601).contains(&rests[1])
            && (1_198..=1_201).contains(&rests[2]),
        "{rests:?} seconds"
    );
    scene.obey();
    scene.round();
    assert_eq!(scene.phase("a"), JobPhase::Running);
}

#[test]
fn running_job_gives_up_growth_that_does_not_start() {
    let mut scene = scene(1, Some(false));
    let job = scene.job("a").workers(1, 2).ps_shards(0, 0).in_place();
    job.0.progress.max_steps = Some(100_000_000);
    scene.settle();
    scene.measured("a", 1, 5.0);
    scene.add_nodes(1, 1);
    scene.snapshot.nodes[1].pods = Some(false);
    for _ in 0..1_200 {
        scene.later(1_000);
        if given_up(&scene.round()) > 0 {
            break;
        }
    }
    let late = scene
        .find("a")
        .tasks
        .iter()
        .filter(|task| task.state.is_released());
    assert_eq!(late.count(), 1, "it has tried to grow");
    scene.round();
    let job = scene.find("a");
    assert_eq!(job.state, JobState::Running);
    let up = job
        .tasks
        .iter()
        .filter(|task| task.state == TaskState::Running);
    assert_eq!((up.count(), job.failures), (1, 0));
}

#[test]
fn start_without_limit_may_take_any_time() {
    let mut scene = scene(1, Some(false));
    scene.policy.start_limit = None;
    scene.job("a").workers(1, 1).ps_shards(0, 0);
    scene.round();
    scene.later(100 * LIMIT_MS);
    assert_eq!(given_up(&scene.round()), 0);
}
