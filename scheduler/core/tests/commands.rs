//! Commands (users' own programs): when such a job succeeds, when it fails, and when the node is
//! charged.

use crate::scene::{Scene, gone};
use muster_core::Action;
use muster_core::policies::name::PolicyName;
use muster_core::policy::Policy;
use muster_model::job::{AfterStop, Charge, JobPhase, JobState, RequeueCause};
use muster_model::spec::Ends;
use muster_model::task::{Outcome, TaskState};

const WELL: Outcome = Outcome::exited(0);

/// Returns a job of two workers that runs on two nodes.
fn running() -> Scene {
    let mut scene = Scene::cluster(2, 1);
    scene.job("a").workers(2, 2).ps_shards(0, 0).retries(1);
    scene.find("a").command = Some(Ends::AllWorkers);
    scene.settle();
    assert_eq!(scene.phase("a"), JobPhase::Running);
    scene
}

fn end(scene: &mut Scene, worker: usize, outcome: Outcome) {
    scene.find("a").tasks[worker].state = gone(outcome);
}

#[test]
fn command_succeeds_when_all_workers_exit_with_zero() {
    let mut scene = running();
    end(&mut scene, 0, WELL);
    for _ in 0..10 {
        let plan = scene.round();
        assert!(
            plan.decisions.is_empty(),
            "the other still works: {plan:#?}"
        );
        scene.later(30_000);
    }
    end(&mut scene, 1, WELL);
    scene.round();
    assert_eq!(scene.phase("a"), JobPhase::Succeeded);
}

#[test]
fn command_can_succeed_with_its_first_worker() {
    let mut scene = running();
    scene.find("a").command = Some(Ends::FirstWorker);
    end(&mut scene, 1, WELL);
    let plan = scene.round();
    assert!(plan.decisions.is_empty(), "not with another: {plan:#?}");
    let mut scene = running();
    scene.find("a").command = Some(Ends::FirstWorker);
    end(&mut scene, 0, WELL);
    scene.round();
    let then = AfterStop::Succeed;
    assert_eq!(scene.find("a").state, JobState::Stopping { then });
}

#[test]
fn failure_after_first_worker_succeeded_is_not_charged() {
    let mut scene = running();
    scene.find("a").command = Some(Ends::FirstWorker);
    end(&mut scene, 0, WELL);
    end(&mut scene, 1, Outcome::exited(1));
    scene.round();
    assert_eq!(scene.phase("a"), JobPhase::Succeeded);
    assert_eq!(scene.find("a").failures, 0);
    // The same facts, known only after the job was given up.
    let mut scene = running();
    scene.find("a").command = Some(Ends::FirstWorker);
    scene.find("a").state = JobState::Stopping {
        then: AfterStop::Fail {
            reason: "worker 1 exited with code 1".to_owned(),
        },
    };
    end(&mut scene, 0, WELL);
    end(&mut scene, 1, Outcome::exited(1));
    scene.round();
    assert_eq!(scene.phase("a"), JobPhase::Succeeded);
}

#[test]
fn process_done_before_all_are_up_counts_as_up() {
    let mut scene = Scene::cluster(2, 1);
    scene.job("a").workers(2, 2).ps_shards(0, 0);
    scene.find("a").command = Some(Ends::AllWorkers);
    scene.round();
    end(&mut scene, 0, WELL);
    scene.find("a").tasks[1].state = TaskState::Running;
    scene.round();
    assert_eq!(scene.phase("a"), JobPhase::Running);
    end(&mut scene, 1, WELL);
    scene.round();
    assert_eq!(scene.phase("a"), JobPhase::Succeeded);
}

#[test]
fn shards_stop_once_workers_of_command_are_done() {
    let mut scene = Scene::cluster(1, 2);
    scene.job("a").workers(2, 2).ps_shards(1, 1);
    scene.find("a").command = Some(Ends::AllWorkers);
    scene.settle();
    end(&mut scene, 0, WELL);
    end(&mut scene, 1, WELL);
    scene.round();
    let then = AfterStop::Succeed;
    assert_eq!(scene.find("a").state, JobState::Stopping { then });
}

#[test]
fn failed_worker_is_charged_and_all_workers_restart() {
    let mut scene = running();
    end(&mut scene, 1, Outcome::exited(3));
    scene.round();
    let then = AfterStop::Requeue {
        cause: RequeueCause::TaskFailed,
    };
    assert_eq!(scene.find("a").state, JobState::Stopping { then });
    assert_eq!(scene.find("a").failures, 1);
}

#[test]
fn orderly_stop_by_node_costs_no_retry() {
    let mut scene = running();
    end(&mut scene, 1, Outcome::stopped());
    scene.round();
    let then = AfterStop::Requeue {
        cause: RequeueCause::NodeLost,
    };
    assert_eq!(scene.find("a").state, JobState::Stopping { then });
    // The remaining task is stopped, and killed after the grace period.
    end(&mut scene, 0, Outcome::killed_late());
    scene.round();
    let job = scene.find("a");
    assert_ne!(job.state.phase(), JobPhase::Stopping);
    assert_eq!(job.failures, 0);
}

#[test]
fn command_that_ended_before_its_stop_succeeds() {
    let mut scene = running();
    scene.find("a").state = JobState::Stopping {
        then: AfterStop::Requeue {
            cause: RequeueCause::Preempted,
        },
    };
    end(&mut scene, 0, WELL);
    end(&mut scene, 1, WELL);
    scene.round();
    assert_eq!(scene.phase("a"), JobPhase::Succeeded);
}

/// Two of the four workers are done. The other two hold one of two GPUs on each node. A gang that
/// needs both nodes waits until the job ends, because a moved process would start from the
/// beginning.
#[test]
fn partly_done_command_is_not_moved() {
    for &share in PolicyName::ALL {
        let mut scene = Scene::cluster(2, 2);
        scene.policy = Policy::named(share);
        scene.job("a").workers(4, 4).ps_shards(0, 0).steps(100_000);
        scene.find("a").command = Some(Ends::AllWorkers);
        scene.settle();
        assert_eq!(scene.phase("a"), JobPhase::Running, "{share:?}");
        let first = scene.find("a").tasks[0].node;
        let (mut here, mut there) = (0, 0);
        for task in &mut scene.find("a").tasks {
            let on_node = if task.node == first {
                &mut here
            } else {
                &mut there
            };
            *on_node += 1;
            if *on_node == 2 {
                task.state = gone(WELL);
            }
        }
        scene.add_nodes(1, 2);
        scene.later(3_600_000);
        scene.job("gang").workers(2, 2).gpus(2).ps_shards(0, 0);
        for _ in 0..3 {
            scene.round();
            assert_eq!(scene.phase("a"), JobPhase::Running, "{share:?}");
            scene.later(60_000);
        }
    }
}

#[test]
fn command_over_its_time_limit_stops_with_reason() {
    let mut scene = running();
    scene.find("a").limit_s = Some(90.0);
    scene.find("a").trained_s = 89.0;
    assert_eq!(scene.round().decisions, Vec::new());
    scene.find("a").trained_s = 90.5;
    scene.round();
    let reason = "it has run for 1.5 minutes, and stop.wall_minutes is 1.5".to_owned();
    let then = AfterStop::Fail { reason };
    assert_eq!(scene.find("a").state, JobState::Stopping { then });
    // A job that has just ended by itself succeeds all the same.
    let mut scene = running();
    scene.find("a").limit_s = Some(90.0);
    scene.find("a").trained_s = 91.0;
    for task in 0..2 {
        end(&mut scene, task, WELL);
    }
    scene.round();
    assert_eq!(scene.phase("a"), JobPhase::Succeeded);
}

#[test]
fn process_lost_by_driver_is_not_charged_and_is_named() {
    let mut scene = running();
    let why = "cuCheckpointProcessRestore: 999".to_owned();
    end(&mut scene, 0, Outcome::lost_by_driver(why));
    let plan = scene.round();
    let stop = plan.decisions.iter().find_map(|one| match &one.action {
        Action::Stop {
            then, why, charge, ..
        } => Some((then.clone(), why.clone(), *charge == Charge::Failure)),
        _ => None,
    });
    let (then, why, charged) = stop.expect("the other is stopped");
    let cause = RequeueCause::NodeLost;
    assert_eq!((then, charged), (AfterStop::Requeue { cause }, false));
    assert_eq!(
        why,
        "worker-0 ended, as the driver did not give it back to its GPUs: cuCheckpointProcessRestore: 999"
    );
    scene.settle();
    assert_eq!(scene.phase("a"), JobPhase::Running);
    assert_eq!(scene.find("a").failures, 0);
}
