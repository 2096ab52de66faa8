//! On which nodes: the placements that policies compose with.

use crate::problem::{Part, Problem, Tally};

/// The node with the most free GPUs first, the first of equals, and so on until the gang is complete: what the peers' simulators do
/// for jobs that are placed anew. `None`, and nothing taken, when it does not fit.
pub fn most_free(tally: &mut Tally, gpus: u32) -> Option<Vec<Part>> {
    if tally.gpus() < gpus {
        return None;
    }
    let mut parts = Vec::new();
    let mut left = gpus;
    while left > 0 {
        let (node, free) = (0..)
            .zip(&tally.free)
            .max_by_key(|&(node, &free)| (free, std::cmp::Reverse(node)))
            .map(|(node, &free): (u32, &u32)| (node, free))?;
        let part = Part {
            node,
            gpus: free.min(left),
        };
        tally.take(&[part]);
        parts.push(part);
        left -= part.gpus;
    }
    Some(parts)
}

/// On as few nodes of one kind as can be: the fullest node that holds all of it, else whole empty nodes first and the rest on the
/// fullest node that holds it. `None`, and nothing taken, when it does not fit.
pub fn packed(tally: &mut Tally, problem: &Problem, kind: u16, gpus: u32) -> Option<Vec<Part>> {
    let mut left = gpus;
    let mut parts: Vec<Part> = Vec::new();
    let fits = |node: &(u32, u32), left: u32| node.1 >= left;
    let mut nodes: Vec<(u32, u32)> = (0..)
        .zip(problem.nodes.iter().zip(&tally.free))
        .filter(|(_, (node, free))| node.kind == kind && **free > 0)
        .map(|(index, (_, &free))| (index, free))
        .collect();
    if nodes.iter().map(|node| node.1).sum::<u32>() < gpus {
        return None;
    }
    while left > 0 {
        let fullest = nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| fits(node, left))
            .min_by_key(|(_, node)| node.1);
        let emptiest = || {
            nodes
                .iter()
                .enumerate()
                .max_by_key(|(index, node)| (node.1, std::cmp::Reverse(*index)))
        };
        let (index, &(node, free)) = fullest.or_else(emptiest)?;
        let part = Part {
            node,
            gpus: free.min(left),
        };
        nodes.remove(index);
        parts.push(part);
        left -= part.gpus;
    }
    tally.take(&parts);
    Some(parts)
}
