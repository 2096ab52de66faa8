//! Resizes in place: which tasks stay, join and leave, and when a restart is needed after all.

use crate::scene::{Scene, gone, stops, tenant};
use muster_core::snapshot::{ReportedCheckpoint, SnapshotTenant};
use muster_core::{Action, RoundPlan};
use muster_model::job::{JobPhase, JobState};
use muster_model::spec::{AllowedPreemption, Ends, Range};
use muster_model::task::{Outcome, Role, TaskState};

/// Returns the numbers of leaving and joining tasks of the only resize of a plan.
fn resize(plan: &RoundPlan) -> (usize, usize) {
    let mut resizes = plan.decisions.iter().filter_map(|one| match &one.action {
        Action::Resize { leave, join, .. } => Some((leave.len(), join.len())),
        _ => None,
    });
    let only = resizes
        .next()
        .unwrap_or_else(|| panic!("a resize in {plan:#?}"));
    assert_eq!(resizes.next(), None, "{plan:#?}");
    only
}

/// Returns a running job of up to four workers on two nodes of two GPUs.
fn running(workers: u32) -> Scene {
    let mut scene = Scene::cluster(2, 2);
    scene.job("a").workers(1, workers).in_place();
    scene.settle();
    assert_eq!(scene.workers("a"), workers);
    scene.measured("a", workers, 20.0);
    scene.later(120_000);
    scene
}

#[test]
fn in_place_job_shrinks_for_new_job_and_regrows() {
    let mut scene = running(4);
    let before = scene.find("a").tasks.clone();
    scene.job("b").workers(1, 1);
    let plan = scene.round();
    assert_eq!(stops(&plan), 0, "{plan:#?}");
    let (leave, join) = resize(&plan);
    assert!(leave >= 1 && join == 0);
    assert_eq!(scene.phase("a"), JobPhase::Running, "a trains on");
    let kept = &scene.find("a").tasks.clone();
    assert!(
        kept.iter().all(|task| before.contains(task)),
        "the same tasks"
    );
    assert!(
        !scene.find("a").leaving.is_empty(),
        "its GPUs are held until it is gone"
    );
    assert_eq!(scene.phase("b"), JobPhase::Queued);
    scene.settle();
    assert_eq!(scene.phase("b"), JobPhase::Running);
    assert_eq!(scene.workers("a") + scene.workers("b"), 4);

    let workers = scene.workers("a");
    scene.measured("a", workers, 5.5 * f64::from(workers));
    scene.find("a").progress.max_steps = Some(2_000_000);
    scene.snapshot.jobs.retain(|job| job.name != "b");
    scene.later(120_000);
    let plan = scene.round();
    assert_eq!(stops(&plan), 0, "{plan:#?}");
    assert_eq!(resize(&plan).0, 0, "nobody leaves");
    assert!(
        scene.find("a").is_resizing(),
        "its newcomers are not up yet"
    );
    let quiet = scene.round();
    assert!(
        quiet.decisions.is_empty(),
        "one thing after the other: {quiet:#?}"
    );
    scene.settle();
    assert_eq!(scene.workers("a"), 4);
    assert_eq!(scene.find("a").revision, 3);
}

#[test]
fn lost_worker_is_dropped_and_replaced_later() {
    let mut scene = running(4);
    let rank_2 = Role::Worker { rank: 2 };
    scene.task("a", rank_2).state = gone(Outcome::signalled(9));
    let plan = scene.round();
    assert_eq!((stops(&plan), resize(&plan)), (0, (1, 0)));
    let job = scene.find("a");
    assert_eq!((job.state.phase(), job.failures), (JobPhase::Running, 1));
    assert_eq!((job.size().0, job.leaving.len()), (3, 0));
    scene.measured("a", 3, 15.0);
    scene.find("a").progress.max_steps = Some(2_000_000);
    scene.later(120_000);
    let plan = scene.round();
    assert_eq!((stops(&plan), resize(&plan)), (0, (0, 1)), "{plan:#?}");
    let ranks: Vec<Role> = scene.find("a").tasks.iter().map(|task| task.role).collect();
    assert!(ranks.contains(&rank_2), "the gap is filled: {ranks:?}");
}

/// Makes the workers of a job agents of `torchrun`, with a checkpoint reported just now.
fn elastic_program(mut scene: Scene) -> Scene {
    let now_ms = scene.snapshot.now_ms;
    let job = scene.find("a");
    job.command = Some(Ends::AllWorkers);
    job.reported = Some(ReportedCheckpoint {
        step: 100,
        at_ms: now_ms,
    });
    scene
}

#[test]
fn elastic_program_changes_size_without_a_stop() {
    let mut scene = elastic_program(running(4));
    scene.find("a").workers = Range { min: 1, max: 3 };
    let plan = scene.round();
    assert_eq!((stops(&plan), resize(&plan)), (0, (1, 0)), "{plan:#?}");
    scene.settle();
    scene.later(120_000);
    scene.find("a").workers = Range { min: 4, max: 4 };
    let plan = scene.round();
    assert_eq!((stops(&plan), resize(&plan)), (0, (0, 1)), "{plan:#?}");
}

#[test]
fn elastic_program_without_a_checkpoint_keeps_its_size() {
    let mut scene = elastic_program(running(4));
    scene.find("a").reported = None;
    scene.job("b").workers(1, 1);
    let plan = scene.round();
    assert_eq!(scene.workers("a"), 4, "{plan:#?}");
    assert_eq!(scene.phase("b"), JobPhase::Queued);
}

/// The workers restart from their checkpoint, so the document's rule for stops holds.
#[test]
fn protected_elastic_program_makes_no_room() {
    let shrinks = |is_protected: bool| {
        let mut scene = elastic_program(running(4));
        if is_protected {
            scene.find("a").preemption.allowed = AllowedPreemption::Suspend;
        }
        scene.job("b").workers(1, 1);
        scene.round();
        scene.workers("a") < 4
    };
    assert_eq!((shrinks(false), shrinks(true)), (true, false));
}

#[test]
fn elastic_program_continues_without_a_lost_worker() {
    let mut scene = elastic_program(running(4));
    scene.task("a", Role::Worker { rank: 2 }).state = gone(Outcome::signalled(9));
    let plan = scene.round();
    assert_eq!((stops(&plan), resize(&plan)), (0, (1, 0)), "{plan:#?}");
}

/// The agent of a worker that has ended well does not meet the others again.
#[test]
fn partly_done_elastic_program_restarts_after_a_loss() {
    let mut scene = elastic_program(running(4));
    scene.task("a", Role::Worker { rank: 1 }).state = gone(Outcome::exited(0));
    scene.task("a", Role::Worker { rank: 2 }).state = gone(Outcome::signalled(9));
    let plan = scene.round();
    assert_eq!(stops(&plan), 1, "{plan:#?}");
}

/// Two shards, each with a replica of the other. One is killed. The job continues and gets another
/// in its place.
#[test]
fn lost_replicated_shard_is_replaced_in_place() {
    let mut scene = Scene::cluster(2, 2);
    scene.job("a").workers(1, 2).replicated(2, 2);
    scene.settle();
    scene.task("a", Role::PsShard { index: 0 }).state = gone(Outcome::signalled(9));
    let plan = scene.round();
    assert_eq!((stops(&plan), resize(&plan)), (0, (1, 1)), "{plan:#?}");
    assert_eq!(scene.phase("a"), JobPhase::Running);
    scene.settle();
    let job = scene.find("a");
    assert_eq!((job.state.phase(), job.size().1), (JobPhase::Running, 2));
    assert!(scene.round().decisions.is_empty(), "nothing is left to do");
}

/// The node stopped the shard in order. It is as lost as a killed one.
#[test]
fn orderly_stopped_replicated_shard_is_replaced() {
    let mut scene = Scene::cluster(2, 2);
    scene.job("a").workers(1, 2).replicated(2, 2);
    scene.settle();
    scene.task("a", Role::PsShard { index: 0 }).state = gone(Outcome::exited(0));
    let plan = scene.round();
    assert_eq!((stops(&plan), resize(&plan)), (0, (1, 1)), "{plan:#?}");
    scene.settle();
    let job = scene.find("a");
    assert_eq!((job.state.phase(), job.size().1), (JobPhase::Running, 2));
    assert_eq!(job.failures, 0);
}

/// The two lost shards may have held each other's replicas.
#[test]
fn two_lost_replicated_shards_cause_restart() {
    let mut scene = Scene::cluster(2, 2);
    scene.job("a").workers(1, 2).replicated(3, 3);
    scene.settle();
    let shards = [0, 1].map(|index| Role::PsShard { index });
    let tasks = scene.find("a").tasks.iter_mut();
    for task in tasks.filter(|task| shards.contains(&task.role)) {
        task.state = gone(Outcome::signalled(9));
    }
    let plan = scene.round();
    assert_eq!(stops(&plan), 1, "{plan:#?}");
}

#[test]
fn job_fails_when_worker_failures_exhaust_retries() {
    let mut scene = running(3);
    scene.find("a").retries = 1;
    for (failures, phase) in [(1, JobPhase::Running), (2, JobPhase::Stopping)] {
        let mut tasks = scene.find("a").tasks.iter_mut();
        let task = tasks.find(|task| matches!(task.role, Role::Worker { rank } if rank > 0));
        task.expect("a worker").state = gone(Outcome::signalled(11));
        scene.round();
        let job = scene.find("a");
        assert_eq!((job.failures, job.state.phase()), (failures, phase));
    }
}

#[test]
fn lost_node_costs_in_place_job_only_its_tasks_there() {
    let mut scene = running(4);
    let home = scene.task("a", Role::Worker { rank: 0 }).node;
    let shard = scene.task("a", Role::PsShard { index: 0 });
    assert_eq!(shard.node, home, "the scene has the shard beside the chief");
    let other = scene.snapshot.nodes.iter_mut().find(|node| node.id != home);
    other.expect("two nodes").up = false;
    let plan = scene.round();
    assert_eq!((stops(&plan), resize(&plan)), (0, (2, 0)));
    assert_eq!((scene.workers("a"), scene.find("a").failures), (2, 0));
}

#[test]
fn job_restarts_without_coordinator_shard_or_minimum() {
    let lost = [
        (1, Role::Worker { rank: 0 }),
        (1, Role::PsShard { index: 0 }),
        (4, Role::Worker { rank: 3 }),
    ];
    for (min, role) in lost {
        let mut scene = running(4);
        scene.find("a").workers.min = min;
        scene.task("a", role).state = gone(Outcome::signalled(9));
        assert_eq!(stops(&scene.round()), 1, "{role}");
    }
}

#[test]
fn drained_node_loses_only_workers_of_in_place_job() {
    let mut scene = running(4);
    let home = scene.task("a", Role::Worker { rank: 0 }).node;
    let other = scene.snapshot.nodes.iter_mut().find(|node| node.id != home);
    other.expect("two nodes").drained = true;
    let plan = scene.round();
    assert_eq!((stops(&plan), resize(&plan)), (0, (2, 0)));
    scene.settle();
    let home_node = scene.snapshot.nodes.iter_mut().find(|node| node.id == home);
    home_node.expect("is there").drained = true;
    assert_eq!(stops(&scene.round()), 1, "nothing stays without the chief");
}

#[test]
fn lowered_quota_shrinks_job_in_place() {
    let mut scene = running(4);
    scene.snapshot.tenants = vec![SnapshotTenant {
        id: tenant(0),
        name: "t0".to_owned(),
        gpu_quota: Some(2),
        weight: 1.0,
    }];
    let plan = scene.round();
    assert_eq!(stops(&plan), 0, "{plan:#?}");
    assert!(scene.find("a").size().0 <= 2);
    assert_eq!(scene.find("a").state, JobState::Running);
}

#[test]
fn stop_includes_leaving_tasks_and_waits_for_them() {
    let mut scene = running(4);
    scene.job("b").workers(1, 1);
    scene.round();
    scene.find("a").intent = muster_model::job::Intent::Cancel;
    scene.round();
    for task in &mut scene.find("a").tasks {
        task.state = gone(Outcome::exited(0));
    }
    scene.round();
    assert_eq!(scene.phase("a"), JobPhase::Stopping, "one is not gone yet");
    assert!(
        scene
            .find("a")
            .leaving
            .iter()
            .all(|task| task.state == TaskState::Stopping)
    );
    scene.find("a").leaving.clear();
    scene.round();
    assert_eq!(scene.phase("a"), JobPhase::Cancelled);
}
