//! Choice among nodes of one GPU kind by their measured speed.
//!
//! The number of nodes, the rack and the tightness of the packing precede the speed, because they
//! concern all jobs. Speed decides between nodes that are equal in these. A slow node is an
//! exception: it is used only where the others do not suffice.

use super::place::{FreeNodeGpus, are_together, in_one_rack, rack, speed_percent};
use crate::problem::{NodeAllocation, SchedulingProblem};
use muster_model::node::NodeSpeed;

/// Rack and speed of nodes by index.
pub(crate) struct Sites<R, S> {
    pub rack: R,
    /// Speed in percent of the typical node of the kind.
    pub speed_percent: S,
}

/// Whether a node of this speed is used after the others.
pub(crate) fn is_slow(speed_percent: u16) -> bool {
    speed_percent <= NodeSpeed::SLOW_PERCENT
}

/// Sites of the problem's nodes.
pub(crate) fn sites_of(
    problem: &SchedulingProblem,
) -> Sites<impl Fn(u32) -> u32, impl Fn(u32) -> u16> {
    Sites {
        rack: |node| rack(problem, node),
        speed_percent: |node| speed_percent(problem, node),
    }
}

/// Returns the place that `place` finds on these nodes, in one rack if possible. `nodes` are
/// ordered by free GPUs, then by speed.
///
/// If slow nodes can be avoided without a further node and without leaving the rack, they are.
pub(crate) fn place_gang<R: Fn(u32) -> u32, S: Fn(u32) -> u16>(
    nodes: &[FreeNodeGpus],
    sites: &Sites<R, S>,
    gpus: u32,
    place: fn(&[FreeNodeGpus], u32) -> Option<Vec<NodeAllocation>>,
) -> Option<Vec<NodeAllocation>> {
    let rack = &sites.rack;
    let mut parts = in_one_rack(nodes, rack, gpus, place)?;
    let is_slow = |node: u32| is_slow((sites.speed_percent)(node));
    if parts.iter().any(|part| is_slow(part.node)) {
        let others = nodes.iter().copied().filter(|&(node, _)| !is_slow(node));
        let others: Vec<FreeNodeGpus> = others.collect();
        let near = in_one_rack(&others, rack, gpus, place);
        parts = near
            .filter(|near| {
                let is_near = are_together(near, rack) || !are_together(&parts, rack);
                near.len() <= parts.len() && is_near
            })
            .unwrap_or(parts);
    }
    level(&mut parts, sites, |node| {
        let free = nodes.iter().find(|one| one.0 == node).map(|one| one.1);
        let alike = nodes.iter().filter(move |one| Some(one.1) == free);
        alike.map(|one| one.0)
    });
    Some(parts)
}

/// Replaces nodes that are faster than the slowest one of a gang, because the gang cannot use their
/// speed. `alike` are nodes that hold the part of a node equally well.
pub(crate) fn level<R: Fn(u32) -> u32, S: Fn(u32) -> u16, A: Iterator<Item = u32>>(
    parts: &mut [NodeAllocation],
    sites: &Sites<R, S>,
    alike: impl Fn(u32) -> A,
) {
    let (rack, speed) = (&sites.rack, &sites.speed_percent);
    let Some(least) = parts.iter().map(|part| speed(part.node)).min() else {
        return;
    };
    for index in 0..parts.len() {
        let present = parts[index].node;
        if speed(present) == least {
            continue;
        }
        let free = alike(present).filter(|&node| {
            let is_level = (least..speed(present)).contains(&speed(node));
            is_level && rack(node) == rack(present) && parts.iter().all(|part| part.node != node)
        });
        if let Some(node) = free.min_by_key(|&node| (speed(node), node)) {
            parts[index].node = node;
        }
    }
}

#[cfg(test)]
mod tests;
