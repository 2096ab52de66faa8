//! Measured speeds of nodes: they decide between equal places, and nothing else.

use crate::dense::random::{self, Dice};
use crate::dense::{told, violations};
use crate::scene::Scene;
use muster_core::policies::name::PolicyName;
use muster_core::policies::place;
use muster_core::policy::Policy;
use muster_core::problem::{FreeResources, NodeAllocation, SchedulingProblem};
use muster_model::id::NodeId;
use muster_model::node::NodeSpeed;
use proptest::prelude::*;

/// Free nodes of two GPUs with these speeds in percent.
fn cluster(share: PolicyName, percents: &[u16]) -> Scene {
    let mut scene = Scene::cluster(u32::try_from(percents.len()).expect("few"), 2);
    scene.policy = Policy::named(share);
    for (node, &percent) in scene.snapshot.nodes.iter_mut().zip(percents) {
        node.speed = (percent != 100).then_some(NodeSpeed { percent, jobs: 3 });
    }
    scene
}

/// Numbers of the nodes on which a job is.
fn nodes_of(scene: &mut Scene, name: &str) -> Vec<usize> {
    let tasks = scene.find(name).tasks.iter();
    let nodes: Vec<NodeId> = tasks.map(|task| task.node).collect();
    let all = scene.snapshot.nodes.iter().enumerate();
    let own = all.filter(|(_, node)| nodes.contains(&node.id));
    own.map(|(number, _)| number).collect()
}

#[test]
fn jobs_start_on_fast_nodes_and_on_slow_ones_last() {
    for share in [PolicyName::Muster, PolicyName::Fifo, PolicyName::Tiresias] {
        let mut scene = cluster(share, &[85, 97, 100, 106]);
        let expected = [("a", [3]), ("b", [2]), ("c", [1]), ("d", [0])];
        for (name, nodes) in expected {
            scene.job(name).workers(2, 2).ps_shards(0, 0);
            scene.round();
            scene.settle();
            assert_eq!(nodes_of(&mut scene, name), nodes, "{share:?} {name}");
        }
    }
}

#[test]
fn gang_starts_on_nodes_of_equal_speed() {
    for share in [PolicyName::Muster, PolicyName::Fifo] {
        let mut scene = cluster(share, &[110, 85, 100, 100]);
        scene.job("gang").workers(4, 4).ps_shards(0, 0);
        scene.round();
        assert_eq!(nodes_of(&mut scene, "gang"), [2, 3], "{share:?}");
    }
}

#[test]
fn running_job_stays_on_a_node_that_turns_out_slow() {
    let mut scene = cluster(PolicyName::Muster, &[100, 100]);
    scene.job("a").workers(2, 2).ps_shards(0, 0);
    scene.round();
    scene.settle();
    let speed = NodeSpeed {
        percent: 60,
        jobs: 9,
    };
    scene.snapshot.nodes[0].speed = Some(speed);
    scene.round();
    assert_eq!(nodes_of(&mut scene, "a"), [0]);
}

fn with_speeds(dice: &mut Dice, problem: &SchedulingProblem) -> SchedulingProblem {
    let mut varied = problem.clone();
    for node in &mut varied.nodes {
        let speed = [100, 100, 104, 97, 88, 75][dice.roll(6) as usize];
        (node.speed_percent, node.rack) = (speed, dice.roll(3));
    }
    varied
}

/// Number of nodes, and whether they are of several racks.
fn spread(problem: &SchedulingProblem, parts: &[NodeAllocation]) -> (usize, bool) {
    let rack = |part: &NodeAllocation| problem.nodes[part.node as usize].rack;
    let is_apart = parts
        .windows(2)
        .any(|pair| rack(&pair[0]) != rack(&pair[1]));
    (parts.len(), is_apart)
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 5_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn decisions_with_node_speeds_are_valid(seed: u64) {
        let mut dice = Dice(seed);
        let mut problem = random::problem(&mut dice, 3);
        random::restrict(&mut dice, &mut problem);
        let problem = with_speeds(&mut dice, &problem);
        for &name in PolicyName::ALL.iter().filter(|&&name| name != PolicyName::Pollux) {
            let decision = name.policy().allocate(&problem);
            let violations = violations(&problem, &decision);
            prop_assert!(violations.is_empty(), "{name:?}: {violations:?} of {}", told(&problem));
        }
    }

    #[test]
    fn speeds_change_neither_number_of_nodes_nor_racks(seed: u64) {
        let mut dice = Dice(seed);
        let problem = random::problem(&mut dice, 1);
        let varied = with_speeds(&mut dice, &problem);
        let mut equal = varied.clone();
        equal.nodes.iter_mut().for_each(|node| node.speed_percent = 100);
        let (unit, gpus) = match problem.jobs.first() {
            Some(job) => (job.unit, job.max_gpus),
            None => return Ok(()),
        };
        let tally = FreeResources::beside_fixed(&problem);
        let [fast, plain] = [&varied, &equal].map(|problem| place::pack(&tally, problem, 0, &unit, gpus));
        let [fast, plain] = [fast, plain].map(|parts| parts.map(|parts| spread(&varied, &parts)));
        prop_assert_eq!(fast, plain, "{}", told(&varied));
    }
}
