//! On which nodes: the placements that policies compose with.

use crate::problem::{Demand, Part, Problem, Tally};
use std::cmp::Reverse;

/// The node with the most free GPUs first, the first of equals, and so on until the gang is complete, whatever the kind: what the
/// peers' simulators do for jobs that are placed anew. `None`, and nothing taken, when it does not fit.
pub fn most_free(tally: &mut Tally, unit: &Demand, gpus: u32) -> Option<Vec<Part>> {
    let mut nodes: Vec<(u32, u32)> = (0..)
        .zip(0..tally.free.len())
        .map(|(node, index)| (node, tally.available(index, unit)))
        .collect();
    nodes.sort_by_key(|&(node, free)| (Reverse(free), node));
    let parts = fill(nodes.into_iter(), gpus)?;
    tally.take(&parts, unit);
    Some(parts)
}

/// On as few nodes of one kind as can be: the fullest node that holds all of it; else the emptiest first and the rest on the fullest
/// that holds it. `None`, and nothing taken, when it does not fit.
pub fn packed(
    tally: &mut Tally,
    problem: &Problem,
    kind: u16,
    unit: &Demand,
    gpus: u32,
) -> Option<Vec<Part>> {
    let parts = pack(tally, problem, kind, unit, gpus)?;
    tally.take(&parts, unit);
    Some(parts)
}

/// Where [`packed`] would go.
pub fn pack(
    tally: &Tally,
    problem: &Problem,
    kind: u16,
    unit: &Demand,
    gpus: u32,
) -> Option<Vec<Part>> {
    let nodes = emptiest_first(tally, problem, kind, unit);
    let mut parts = fill(nodes.iter().copied(), gpus)?;
    if let Some(last) = parts.last_mut() {
        // The nodes taken whole stand first, so the rest may go to any node behind them.
        let behind = nodes.iter().skip_while(|&&(node, _)| node != last.node);
        let fullest = behind.filter(|&&(_, free)| free >= last.gpus);
        if let Some(&(node, _)) = fullest.min_by_key(|&&(node, free)| (free, node)) {
            last.node = node;
        }
    }
    Some(parts)
}

/// Where [`most_free`] would go if there were nodes of one kind only.
pub fn emptiest(
    tally: &Tally,
    problem: &Problem,
    kind: u16,
    unit: &Demand,
    gpus: u32,
) -> Option<Vec<Part>> {
    fill(emptiest_first(tally, problem, kind, unit).into_iter(), gpus)
}

/// The nodes of a kind on which there is room for the unit, and the GPUs that it may take there.
fn emptiest_first(tally: &Tally, problem: &Problem, kind: u16, unit: &Demand) -> Vec<(u32, u32)> {
    let mut nodes: Vec<(u32, u32)> = (0..)
        .zip(problem.nodes.iter().enumerate())
        .filter(|(_, (_, node))| node.kind == kind)
        .map(|(node, (index, _))| (node, tally.available(index, unit)))
        .filter(|&(_, free)| free > 0)
        .collect();
    nodes.sort_by_key(|&(node, free)| (Reverse(free), node));
    nodes
}

/// Takes from the nodes in their order until the gang is complete.
fn fill(nodes: impl Iterator<Item = (u32, u32)>, gpus: u32) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    let mut left = gpus;
    for (node, free) in nodes {
        if left == 0 || free == 0 {
            break;
        }
        let part = Part {
            node,
            gpus: free.min(left),
        };
        left -= part.gpus;
        parts.push(part);
    }
    (left == 0).then_some(parts)
}
