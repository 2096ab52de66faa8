//! Jobs whose node lacks a program that they need: they go to other nodes, or fail with a reason if
//! none is left.

use crate::scene::{Scene, gone};
use muster_core::snapshot::FailedReport;
use muster_model::id::NodeId;
use muster_model::job::{JobPhase, JobState};
use muster_model::task::{Outcome, TaskState};
use std::collections::BTreeSet;

/// Lets the first task of the job report that its node has no mpirun, and ends the revision.
/// Returns the node.
fn lacks_mpirun(scene: &mut Scene, name: &str) -> NodeId {
    let job = scene.find(name);
    let node = job.tasks[0].node;
    job.failed = Some(FailedReport {
        message: "command.argv[0] is \"mpirun\", which is no program on this node".to_owned(),
        retryable: true,
        lacks: Some("mpirun".to_owned()),
    });
    job.unfit.push(node);
    for task in &mut job.tasks {
        if !matches!(task.state, TaskState::Released { .. }) {
            task.state = gone(Outcome::exited(1));
        }
    }
    node
}

/// Runs rounds without a passage of time until the job has tasks again or has ended.
fn until_placed(scene: &mut Scene, name: &str) {
    for _ in 0..4 {
        scene.round();
        scene.obey();
        let phase = scene.phase(name);
        if phase.is_terminal() || phase == JobPhase::Running {
            return;
        }
    }
    panic!("{:?}", scene.find(name));
}

fn failure(scene: &mut Scene, name: &str) -> String {
    match &scene.find(name).state {
        JobState::Failed { reason } => reason.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn missing_program_moves_job_to_another_node_at_once() {
    let mut scene = Scene::cluster(3, 1);
    scene.job("mpi").workers(1, 1).ps_shards(0, 0);
    scene.settle();
    let node = lacks_mpirun(&mut scene, "mpi");
    until_placed(&mut scene, "mpi");
    let job = scene.find("mpi");
    assert_eq!(job.state.phase(), JobPhase::Running);
    assert_ne!(job.tasks[0].node, node);
    assert_eq!(job.failures, 1, "it costs a retry");
}

#[test]
fn program_missing_on_every_node_fails_job_by_name() {
    let mut scene = Scene::cluster(3, 2);
    scene.job("mpi").workers(2, 2).ps_shards(0, 0);
    scene.settle();
    let mut looked = BTreeSet::new();
    while scene.phase("mpi") == JobPhase::Running {
        assert!(
            looked.insert(lacks_mpirun(&mut scene, "mpi")),
            "no node twice"
        );
        until_placed(&mut scene, "mpi");
    }
    assert_eq!(looked.len(), 3);
    assert_eq!(
        failure(&mut scene, "mpi"),
        "no node has mpirun (looked on 3)"
    );
}

#[test]
fn program_missing_on_only_node_fails_without_retry() {
    let mut scene = Scene::cluster(1, 2);
    scene.job("mpi").workers(1, 1).ps_shards(0, 0);
    scene.settle();
    lacks_mpirun(&mut scene, "mpi");
    until_placed(&mut scene, "mpi");
    assert_eq!(
        failure(&mut scene, "mpi"),
        "no node has mpirun (looked on 1)"
    );
    assert_eq!(scene.find("mpi").failures, 0);
}

#[test]
fn missing_program_is_tried_as_often_as_retries_allow() {
    let mut scene = Scene::cluster(6, 1);
    scene.job("mpi").workers(1, 1).ps_shards(0, 0).retries(1);
    scene.settle();
    for _ in 0..2 {
        lacks_mpirun(&mut scene, "mpi");
        until_placed(&mut scene, "mpi");
    }
    let reason = failure(&mut scene, "mpi");
    assert!(reason.ends_with("its only retry is used up"), "{reason}");
}

#[test]
fn gang_fails_when_remaining_nodes_are_too_few() {
    let mut scene = Scene::cluster(3, 1);
    scene.job("mpi").workers(3, 3).ps_shards(0, 0);
    scene.settle();
    lacks_mpirun(&mut scene, "mpi");
    until_placed(&mut scene, "mpi");
    assert_eq!(
        failure(&mut scene, "mpi"),
        "1 node does not have mpirun, and the others hold 2 of at least 3 workers"
    );
}
