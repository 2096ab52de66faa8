//! Both placements, the search and the index of Muster, prefer fast nodes in the same way.

use crate::policies::SchedulingPolicy;
use crate::policies::muster::Muster;
use crate::policies::place::pack;
use crate::policies::scene::{cluster, job, part, power};
use crate::problem::{FreeResources, NodeAllocation, SchedulingProblem};

/// Speed in percent, rack and free GPUs of a node of four GPUs.
struct Site(u16, u32, u32);

/// Cluster in which immovable jobs hold what is not free.
fn problem(sites: &[Site]) -> SchedulingProblem {
    let count = u32::try_from(sites.len()).expect("few");
    let mut problem = cluster(&[(count, 4)]);
    for (index, &Site(speed, rack, free)) in (0..).zip(sites) {
        let node = &mut problem.nodes[index as usize];
        (node.speed_percent, node.rack) = (speed, rack);
        if free < 4 {
            let mut holder = job(vec![power(1.0, 1.0)]);
            holder.present = vec![part(index, 4 - free)];
            holder.fixed = true;
            problem.jobs.push(holder);
        }
    }
    problem
}

/// Nodes of a gang of `gpus` GPUs, in order. Both placements find the same ones.
fn nodes(sites: &[Site], gpus: u32) -> Vec<u32> {
    let mut problem = problem(sites);
    let mut gang = job(vec![power(1.0, 1.0)]);
    (gang.min_gpus, gang.max_gpus) = (gpus, gpus);
    let tally = FreeResources::beside_fixed(&problem);
    let packed = pack(&tally, &problem, 0, &gang.unit, gpus);
    problem.jobs.push(gang);
    let decision = Muster::STANDARD.allocate(&problem);
    let indexed = decision.holds(&problem, problem.jobs.len() - 1);
    let [packed, indexed] = [packed.as_deref().expect("it fits"), indexed].map(sorted);
    assert_eq!(packed, indexed, "the search and the index");
    packed
}

fn sorted(parts: &[NodeAllocation]) -> Vec<u32> {
    let mut nodes: Vec<u32> = parts.iter().map(|part| part.node).collect();
    nodes.sort_unstable();
    nodes
}

#[test]
fn faster_of_equal_nodes_is_used() {
    let sites = [Site(98, 0, 4), Site(105, 0, 4), Site(103, 0, 4)];
    assert_eq!(nodes(&sites, 2), [1]);
    let equal = [Site(100, 0, 4), Site(100, 0, 4)];
    assert_eq!(nodes(&equal, 2), [0]);
}

#[test]
fn tighter_node_precedes_faster_node() {
    assert_eq!(nodes(&[Site(120, 0, 4), Site(95, 0, 2)], 2), [1]);
}

#[test]
fn slow_node_is_used_after_the_others() {
    let tight = Site(90, 0, 2);
    assert_eq!(nodes(&[Site(100, 0, 4), tight], 2), [0]);
    assert_eq!(nodes(&[Site(100, 0, 1), Site(90, 0, 2)], 2), [1]);
    // One slow node, rather than two others.
    assert_eq!(
        nodes(&[Site(100, 0, 2), Site(100, 0, 2), Site(80, 0, 4)], 4),
        [2]
    );
}

#[test]
fn gang_avoids_slow_node_on_as_many_nodes() {
    let sites = [
        Site(85, 0, 4),
        Site(100, 0, 4),
        Site(85, 0, 2),
        Site(100, 0, 3),
    ];
    assert_eq!(nodes(&sites, 6), [1, 3]);
    assert_eq!(nodes(&sites, 8), [0, 1], "two nodes, one of them slow");
}

#[test]
fn rack_precedes_speed() {
    let sites = [
        Site(85, 1, 4),
        Site(100, 2, 4),
        Site(85, 1, 4),
        Site(100, 3, 4),
    ];
    assert_eq!(nodes(&sites, 8), [0, 2]);
    let sites = [
        Site(110, 1, 4),
        Site(100, 2, 4),
        Site(104, 3, 4),
        Site(100, 2, 4),
    ];
    assert_eq!(nodes(&sites, 8), [1, 3]);
}

#[test]
fn gang_leaves_speed_that_it_cannot_use() {
    let sites = [
        Site(120, 0, 4),
        Site(100, 0, 4),
        Site(100, 0, 4),
        Site(98, 0, 4),
    ];
    assert_eq!(nodes(&sites, 8), [1, 2]);
    assert_eq!(nodes(&sites, 4), [0]);
    let sites = [Site(98, 0, 4), Site(120, 0, 4), Site(110, 0, 4)];
    assert_eq!(nodes(&sites, 8), [1, 2]);
}

#[test]
fn each_gang_takes_the_fastest_node_that_is_left() {
    let sites = [Site(95, 0, 4), Site(104, 0, 4), Site(97, 0, 4)];
    let mut problem = problem(&sites);
    let mut gang = job(vec![power(1.0, 1.0)]);
    (gang.min_gpus, gang.max_gpus) = (4, 4);
    problem.jobs = vec![gang; 3];
    let decision = Muster::STANDARD.allocate(&problem);
    let held = [0, 1, 2].map(|job| decision.holds(&problem, job)[0].node);
    assert_eq!(held, [1, 2, 0]);
}

/// The large gangs are placed first, the faster node before the slower one. Both then have one GPU.
#[test]
fn rest_of_the_faster_node_is_used_first() {
    let sites = [Site(97, 0, 4), Site(104, 0, 4)];
    let mut problem = problem(&sites);
    problem.jobs = vec![job(vec![power(1.0, 1.0)]); 3];
    for (job, gpus) in problem.jobs.iter_mut().zip([3, 3, 1]) {
        (job.min_gpus, job.max_gpus) = (gpus, gpus);
    }
    let decision = Muster::STANDARD.allocate(&problem);
    assert_eq!(decision.holds(&problem, 2)[0].node, 1);
}
