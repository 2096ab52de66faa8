//! Placement of a gang whose workers use no GPUs, by free CPU and memory.

use super::free::{Availability, FreeNode, HostCapacity};
use super::gang::{GangShape, NodeTaskCounts};
use std::cmp::Reverse;

/// A place for this number of workers and shards, if there is one. Tasks go to nodes with few free
/// GPUs, so that CPU beside free GPUs stays available, then to those with the most free CPU.
pub(crate) fn find(
    free: &[FreeNode],
    shape: &GangShape,
    (workers, ps_shards): (u32, u32),
    when: Availability,
) -> Option<Vec<NodeTaskCounts>> {
    let mut left = free.to_vec();
    let mut shares: Vec<NodeTaskCounts> = Vec::new();
    let worker = HostCapacity::worker(&shape.worker);
    let shard = HostCapacity::shard(&shape.ps_shard);
    for task in 0..workers.saturating_add(ps_shards) {
        let is_worker = task < workers;
        let needed = if is_worker { worker } else { shard };
        let nodes = (0_u32..).zip(&left);
        let fitting = nodes.filter(|(_, node)| node.takes(shape) && node.room(when).holds(needed));
        let (node, _) = fitting.min_by_key(|(index, node)| {
            let cpu_milli = node.room(when).cpu_milli;
            (node.gpus_beside_cpu(when), Reverse(cpu_milli), *index)
        })?;
        left[node as usize].take_room(needed, when);
        let at = shares.iter().position(|share| share.node == node);
        let at = at.unwrap_or_else(|| {
            shares.push(NodeTaskCounts {
                node,
                workers: 0,
                ps_shards: 0,
            });
            shares.len() - 1
        });
        shares[at].workers += u32::from(is_worker);
        shares[at].ps_shards += u32::from(!is_worker);
    }
    Some(shares)
}
