//! Bad nodes: a node with failures of several jobs takes no new tasks.

use crate::scene::{JobIn, Scene};
use muster_core::RoundPlan;
use muster_core::snapshot::Fault;
use muster_model::fault::NodeFault;
use muster_model::id::{JobId, NodeId};
use muster_model::job::JobPhase;
use uuid::Uuid;

const KILLED: NodeFault = NodeFault::Killed { signal: 9 };

fn charge(scene: &mut Scene, node: usize, job: Option<u128>, ago_ms: i64) {
    charge_with(scene, node, job, ago_ms, KILLED);
}

fn charge_with(scene: &mut Scene, node: usize, job: Option<u128>, ago_ms: i64, what: NodeFault) {
    let at_ms = scene.snapshot.now_ms - ago_ms;
    let job = job.map(|number| JobId(Uuid::from_u128(number)));
    scene.snapshot.nodes[node]
        .faults
        .push(Fault { job, what, at_ms });
}

fn excluded(plan: &RoundPlan) -> Vec<NodeId> {
    plan.excluded.iter().map(|one| one.node).collect()
}

#[test]
fn node_with_faults_of_three_jobs_is_excluded() {
    let mut scene = Scene::cluster(3, 2);
    let JobIn(_) = scene.job("a");
    scene.settle();
    let bad = scene.find("a").tasks[0].node;
    let place = scene.snapshot.nodes.iter().position(|node| node.id == bad);
    let place = place.expect("it runs somewhere");
    charge(&mut scene, place, Some(1), 1_000);
    charge(&mut scene, place, Some(2), 2_000);
    charge(&mut scene, place, Some(2), 3_000);
    assert_eq!(excluded(&scene.round()), [], "two jobs");
    charge(&mut scene, place, Some(3), 4_000);
    let plan = scene.round();
    assert_eq!(excluded(&plan), [bad]);
    assert!(plan.excluded[0].why.contains("3 jobs"), "{plan:#?}");
    for number in 0..5 {
        scene.job(&format!("b{number}")).workers(1, 1);
    }
    scene.settle();
    assert_eq!(scene.phase("a"), JobPhase::Running, "it stays");
    for number in 0..5 {
        let job = scene.find(&format!("b{number}"));
        assert!(job.tasks.iter().all(|task| task.node != bad), "{job:#?}");
    }
    let waits = (0..5).filter(|number| scene.phase(&format!("b{number}")) == JobPhase::Queued);
    assert_eq!(waits.count(), 1, "the other two nodes are full");
    scene.snapshot.nodes[place].excluded = false;
    scene.snapshot.nodes[place].faults.clear();
    scene.settle();
    assert!((0..5).all(|number| scene.phase(&format!("b{number}")) == JobPhase::Running));
}

#[test]
fn old_faults_and_jobs_failing_everywhere_do_not_count() {
    let mut scene = Scene::cluster(3, 2);
    for job in 1..=5 {
        charge(&mut scene, 0, Some(job), 3_600_001);
    }
    assert_eq!(excluded(&scene.round()), []);
    for job in 1..=5 {
        charge(&mut scene, 0, Some(job), 0);
        charge(&mut scene, 1, Some(job), 0);
    }
    assert_eq!(excluded(&scene.round()), []);
}

#[test]
fn equal_faults_on_all_nodes_exclude_none() {
    let mut scene = Scene::cluster(3, 2);
    for node in 0..3 {
        for job in 0..4 {
            charge(&mut scene, node, Some(100 * node as u128 + job + 1), 0);
        }
    }
    assert_eq!(excluded(&scene.round()), [], "none stands out");
}

#[test]
fn at_most_a_third_of_nodes_is_excluded() {
    let mut two = Scene::cluster(2, 2);
    (1..=9).for_each(|job| charge(&mut two, 0, Some(job), 0));
    assert_eq!(excluded(&two.round()), []);
    let mut scene = Scene::cluster(7, 1);
    for node in 0..3 {
        for job in 0..(5 + node as u128) {
            charge(&mut scene, node, Some(100 * node as u128 + job + 1), 0);
        }
    }
    let worst = [scene.snapshot.nodes[2].id, scene.snapshot.nodes[1].id];
    assert_eq!(excluded(&scene.round()), worst);
    assert_eq!(excluded(&scene.round()), [], "two of seven are closed");
}

#[test]
fn machine_errors_count_one_by_one() {
    let mut scene = Scene::cluster(4, 1);
    for ago_ms in 0..3 {
        charge(&mut scene, 1, None, ago_ms);
    }
    let plan = scene.round();
    assert_eq!(excluded(&plan), [scene.snapshot.nodes[1].id]);
    let why = &plan.excluded[0].why;
    assert!(why.starts_with("3 errors of its hardware within"), "{why}");
}

fn xid(gpu: u32, xid: u64) -> NodeFault {
    NodeFault::Xid { gpu, xid }
}

/// A GPU with broken memory reports several XID numbers and its counters within a moment.
#[test]
fn reports_of_one_gpu_error_count_once() {
    let memory = NodeFault::UncorrectedMemory { gpu: 0, errors: 2 };
    let mut scene = Scene::cluster(4, 4);
    for (ago_ms, what) in [
        (130_000, xid(0, 48)),
        (129_990, xid(0, 63)),
        (127_000, memory),
        (129_000, xid(0, 94)),
    ] {
        charge_with(&mut scene, 1, None, ago_ms, what);
    }
    assert_eq!(excluded(&scene.round()), [], "one error");
    charge_with(&mut scene, 1, None, 129_000, xid(1, 79));
    assert_eq!(excluded(&scene.round()), [], "two GPUs");
    charge_with(&mut scene, 1, None, 60_000, xid(0, 48));
    let plan = scene.round();
    assert_eq!(excluded(&plan), [scene.snapshot.nodes[1].id], "and again");
    assert!(plan.excluded[0].why.starts_with("3 "), "{plan:#?}");
}
