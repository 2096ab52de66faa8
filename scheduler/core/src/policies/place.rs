//! Placements: the nodes of a gang. Policies are composed with them.

use super::place_by_speed::{is_slow, place_gang, sites_of};
use crate::problem::{Demand, FreeResources, NodeAllocation, SchedulingProblem};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Takes the place that [`pack`] finds. Returns `None` and takes nothing if the gang does not fit.
pub fn packed(
    tally: &mut FreeResources,
    problem: &SchedulingProblem,
    kind: u16,
    unit: &Demand,
    gpus: u32,
) -> Option<Vec<NodeAllocation>> {
    let parts = pack(tally, problem, kind, unit, gpus)?;
    tally.take(&parts, unit);
    Some(parts)
}

/// Returns a place on as few nodes of one kind as possible.
///
/// If one node holds the gang, the fullest such node is used. Otherwise the emptiest nodes are
/// filled first, and the rest goes to the fullest node that holds it. Among places on equally few
/// nodes, a place in a single rack is preferred. Nodes precede racks because speeds are measured
/// and estimated by number of nodes. Among equals the faster node comes first, and a slow node
/// comes last ([`is_slow`]).
pub fn pack(
    tally: &FreeResources,
    problem: &SchedulingProblem,
    kind: u16,
    unit: &Demand,
    gpus: u32,
) -> Option<Vec<NodeAllocation>> {
    // Most gangs fit on one node. This path finds it without sorting the nodes.
    if let Some((.., node)) = ids(problem)
        .filter_map(|node| {
            let free = available(tally, problem, kind, unit, node, gpus)?;
            let speed = speed_percent(problem, node);
            (free >= gpus).then_some((is_slow(speed), free, Reverse(speed), node))
        })
        .min()
    {
        return Some(vec![NodeAllocation { node, gpus }]);
    }
    let nodes = emptiest_first(tally, problem, kind, unit, gpus);
    place_gang(&nodes, &sites_of(problem), gpus, tight)
}

/// Node and its free GPUs.
pub(crate) type FreeNodeGpus = (u32, u32);

/// Fills the nodes in their order with a gang. The rest of it goes to the fullest node that holds
/// it. Nodes with equally many free GPUs are next to each other.
pub(crate) fn tight(nodes: &[FreeNodeGpus], gpus: u32) -> Option<Vec<NodeAllocation>> {
    let mut parts = fill(nodes.iter().copied(), gpus)?;
    if let Some(last) = parts.last_mut() {
        // Fully used nodes come first, so the rest may go to any later node.
        let behind = nodes.iter().skip_while(|&&(node, _)| node != last.node);
        let fullest = behind.filter(|&&(_, free)| free >= last.gpus);
        // The first of equals wins.
        if let Some(&(node, _)) = fullest.min_by_key(|&&(_, free)| free) {
            last.node = node;
        }
    }
    Some(parts)
}

/// Returns the place that `place` finds on these nodes, or one on as many nodes of a single rack.
/// The rack with the fewest free GPUs that fits is used, so larger gaps stay whole.
pub(crate) fn in_one_rack(
    nodes: &[FreeNodeGpus],
    rack: impl Fn(u32) -> u32,
    gpus: u32,
    place: impl Fn(&[FreeNodeGpus], u32) -> Option<Vec<NodeAllocation>>,
) -> Option<Vec<NodeAllocation>> {
    let parts = place(nodes, gpus)?;
    if are_together(&parts, &rack) {
        return Some(parts);
    }
    let mut racks: BTreeMap<u32, Vec<FreeNodeGpus>> = BTreeMap::new();
    for &(node, free) in nodes {
        racks.entry(rack(node)).or_default().push((node, free));
    }
    let mut racks: Vec<(u32, Vec<FreeNodeGpus>)> = racks
        .into_values()
        .map(|nodes| (nodes.iter().map(|(_, free)| free).sum::<u32>(), nodes))
        .filter(|(free, _)| *free >= gpus)
        .collect();
    // The sort is stable: among equals the first rack wins.
    racks.sort_by_key(|(free, _)| *free);
    let mut near = racks.iter().filter_map(|(_, nodes)| place(nodes, gpus));
    let near = near.find(|near| near.len() <= parts.len());
    Some(near.unwrap_or(parts))
}

/// Whether all parts are in one rack.
pub(crate) fn are_together(parts: &[NodeAllocation], rack: impl Fn(u32) -> u32) -> bool {
    parts
        .windows(2)
        .all(|pair| rack(pair[0].node) == rack(pair[1].node))
}

pub(crate) fn rack(problem: &SchedulingProblem, node: u32) -> u32 {
    problem.nodes[node as usize].rack
}

pub(crate) fn speed_percent(problem: &SchedulingProblem, node: u32) -> u16 {
    problem.nodes[node as usize].speed_percent
}

/// Returns a place that takes the node of a kind with the most free GPUs first, and so on until the
/// gang is complete. Ties go to the faster node, then to the lower index. The reference simulators
/// place jobs in this way. They have no racks; where racks are known, a place on as many nodes of
/// one rack is preferred.
pub fn emptiest(
    tally: &FreeResources,
    problem: &SchedulingProblem,
    kind: u16,
    unit: &Demand,
    gpus: u32,
) -> Option<Vec<NodeAllocation>> {
    let nodes = ids(problem).filter_map(|node| {
        let free = available(tally, problem, kind, unit, node, 1)?;
        Some((free, speed_percent(problem, node), Reverse(node)))
    });
    match nodes.max() {
        Some((free, _, Reverse(node))) if free >= gpus => {
            return Some(vec![NodeAllocation { node, gpus }]);
        }
        _ => {}
    }
    let nodes = emptiest_first(tally, problem, kind, unit, gpus);
    in_one_rack(
        &nodes,
        |node| rack(problem, node),
        gpus,
        |nodes, gpus| fill(nodes.iter().copied(), gpus),
    )
}

fn ids(problem: &SchedulingProblem) -> impl Iterator<Item = u32> {
    (0..).zip(&problem.nodes).map(|(node, _)| node)
}

/// Returns the GPUs that the unit may take on a node of this kind with at least `least` free ones.
/// Returns `None` if there are none.
fn available(
    tally: &FreeResources,
    problem: &SchedulingProblem,
    kind: u16,
    unit: &Demand,
    node: u32,
    least: u32,
) -> Option<u32> {
    let index = node as usize;
    if tally.free[index] < least || problem.nodes[index].kind != kind {
        return None;
    }
    Some(tally.available(index, unit)).filter(|&free| free > 0)
}

/// Returns the nodes of a kind that have room for the unit, and the GPUs that it may take there.
/// Among nodes with equally many free GPUs the faster one is first.
/// Empty if they cannot hold the gang in total: in a full cluster that is usual, and the sort is
/// skipped.
pub(crate) fn emptiest_first(
    tally: &FreeResources,
    problem: &SchedulingProblem,
    kind: u16,
    unit: &Demand,
    gpus: u32,
) -> Vec<FreeNodeGpus> {
    let mut nodes: Vec<FreeNodeGpus> = (0..)
        .zip(problem.nodes.iter().enumerate())
        .filter(|(_, (_, node))| node.kind == kind)
        .map(|(node, (index, _))| (node, tally.available(index, unit)))
        .filter(|&(_, free)| free > 0)
        .collect();
    if nodes.iter().map(|&(_, free)| free).sum::<u32>() < gpus {
        return Vec::new();
    }
    nodes.sort_by_key(|&(node, free)| (Reverse(free), Reverse(speed_percent(problem, node)), node));
    nodes
}

/// Takes from the nodes in their order until the gang is complete.
fn fill(nodes: impl Iterator<Item = FreeNodeGpus>, gpus: u32) -> Option<Vec<NodeAllocation>> {
    let mut parts = Vec::new();
    let mut left = gpus;
    for (node, free) in nodes {
        if left == 0 || free == 0 {
            break;
        }
        let part = NodeAllocation {
            node,
            gpus: free.min(left),
        };
        left -= part.gpus;
        parts.push(part);
    }
    (left == 0).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::AllowedNodes;
    use crate::problem::ProblemNode;

    /// Returns a pseudo-random number below `sides`.
    fn dice(seed: u64, salt: u64, sides: u64) -> u32 {
        let mixed = (seed * 31 + salt + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        u32::try_from((mixed >> 33) % sides).expect("small")
    }

    /// Nodes of two kinds, partly taken. On some of them CPU is scarcer than GPUs.
    fn fragmented(seed: u64) -> (SchedulingProblem, FreeResources) {
        let nodes = (0..12).map(|node| ProblemNode {
            kind: u16::try_from(dice(seed, node, 2)).expect("small"),
            gpus: dice(seed, node + 100, 9),
            cpu_milli: u64::from(dice(seed, node + 200, 9)) * 100,
            memory_bytes: 1 << 30,
            rack: 0,
            speed_percent: 100,
        });
        let problem = SchedulingProblem {
            nodes: nodes.collect(),
            ..SchedulingProblem::default()
        };
        let tally = FreeResources::empty(&problem);
        (problem, tally)
    }

    #[test]
    fn placement_shortcuts_match_full_search() {
        let mut alone = 0;
        for seed in 0..2_000 {
            let (problem, tally) = fragmented(seed);
            let unit = Demand {
                gpus: 1 + u32::try_from(seed % 3).expect("small"),
                cpu_milli: 100 * (seed % 4),
                memory_bytes: 0,
                nodes: AllowedNodes::ALL,
            };
            for units in 1..8 {
                let gpus = units * unit.gpus;
                let nodes = emptiest_first(&tally, &problem, 0, &unit, gpus);
                let long = fill(nodes.iter().copied(), gpus);
                assert_eq!(emptiest(&tally, &problem, 0, &unit, gpus), long);
                let whole = nodes.iter().filter(|&&(_, free)| free >= gpus);
                let fullest = whole.min_by_key(|&&(node, free)| (free, node));
                let packed = pack(&tally, &problem, 0, &unit, gpus);
                if let Some(&(node, _)) = fullest {
                    assert_eq!(packed, Some(vec![NodeAllocation { node, gpus }]));
                    alone += 1;
                } else {
                    let [packed, long] = [packed, long].map(|parts| parts.as_ref().map(Vec::len));
                    assert_eq!(packed, long);
                }
            }
        }
        assert!(alone > 1_000, "{alone} gangs went on one node");
    }
}
