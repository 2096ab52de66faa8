//! Placement of a gang where the policy's place is not available: on as few nodes of one kind as
//! possible, within their CPU and memory.

use super::free::{Availability, FreeNode, HostCapacity};
use super::gang::{self, GangShape, NodeTaskCounts};
use super::place_by_cpu;
use super::planned_job::PlannedJob;
use super::round_state::RoundState;
use crate::policies::place::{FreeNodeGpus, tight};
use crate::policies::place_by_speed::{Sites, place_gang};
use crate::problem::NodeAllocation;
use std::cmp::Reverse;

/// A place for this number of workers and shards, if there is one.
pub(crate) fn find(
    free: &[FreeNode],
    shape: &GangShape,
    (workers, ps_shards): (u32, u32),
    when: Availability,
) -> Option<Vec<NodeTaskCounts>> {
    if shape.worker.gpus == 0 {
        return place_by_cpu::find(free, shape, (workers, ps_shards), when);
    }
    let mut kinds: Vec<u16> = free
        .iter()
        .filter(|node| node.gpus(when) > 0)
        .map(|node| node.kind)
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds.into_iter().find_map(|kind| {
        let beside = fill(free, shape, kind, workers, when)
            .and_then(|parts| gang::at(free, shape, &parts, ps_shards, when));
        beside.or_else(|| shards_first(free, shape, kind, (workers, ps_shards), when))
    })
}

/// Whether the smallest gang fits the empty cluster and its tenant's quota.
pub(crate) fn could_ever_run(round: &RoundState<'_>, live: &PlannedJob<'_>) -> bool {
    round
        .quota(live)
        .is_none_or(|quota| live.shape.min_gpus() <= quota)
        && fits_empty(round, &live.shape)
}

/// Whether the smallest gang fits the empty cluster.
pub(crate) fn fits_empty(round: &RoundState<'_>, shape: &GangShape) -> bool {
    let least = (shape.workers.min, shape.ps_shards.min);
    fits_one_node(&round.empty, shape, least)
        || find(&round.empty, shape, least, Availability::Now).is_some()
}

/// Whether the workers fit the first node that has GPUs for all of them, and the shards fit beside
/// them or elsewhere. That is true of most gangs and needs no list of nodes.
fn fits_one_node(free: &[FreeNode], shape: &GangShape, (workers, ps_shards): (u32, u32)) -> bool {
    if shape.worker.gpus == 0 {
        return false;
    }
    let when = Availability::Now;
    let mut nodes = (0_u32..).zip(free);
    let first = nodes.find(|(_, node)| units(node, shape, when) >= workers);
    first.is_some_and(|(node, _)| {
        let gpus = shape.gpus(workers);
        let part = NodeAllocation { node, gpus };
        gang::at(free, shape, &[part], ps_shards, when).is_some()
    })
}

/// Places workers on nodes of one kind. The fullest node that holds all of them is used, so that
/// larger gaps stay whole. Otherwise the emptiest nodes are used, and the rest goes to the fullest.
/// They are in one rack where that takes no more nodes. Among equal nodes the faster one is used.
fn fill(
    free: &[FreeNode],
    shape: &GangShape,
    kind: u16,
    workers: u32,
    when: Availability,
) -> Option<Vec<NodeAllocation>> {
    let mut nodes: Vec<FreeNodeGpus> = (0_u32..)
        .zip(free)
        .filter(|(_, node)| node.kind == kind)
        .map(|(index, node)| (index, units(node, shape, when)))
        .filter(|&(_, units)| units > 0)
        .collect();
    let sites = Sites {
        rack: |node: u32| free[node as usize].rack,
        speed_percent: |node: u32| free[node as usize].speed_percent,
    };
    nodes.sort_by_key(|&(index, units)| {
        let speed = (sites.speed_percent)(index);
        (Reverse(units), Reverse(speed), index)
    });
    let mut parts = place_gang(&nodes, &sites, workers, tight)?;
    for part in &mut parts {
        part.gpus *= shape.worker.gpus.max(1);
    }
    Some(parts)
}

/// Number of workers for which a node has room.
pub(crate) fn units(node: &FreeNode, shape: &GangShape, when: Availability) -> u32 {
    if !node.takes(shape) || node.gpus_of_a_task(when) < shape.worker.gpus {
        return 0;
    }
    let room = node.room(when);
    let worker = HostCapacity::worker(&shape.worker);
    let units = i64::from(node.gpus(when) / shape.worker.gpus.max(1))
        .min(quotient(room.cpu_milli, worker.cpu_milli))
        .min(quotient(room.memory_bytes, worker.memory_bytes));
    u32::try_from(units).unwrap_or(0)
}

/// How many times `each` fits `have`; unlimited if it is 0.
fn quotient(have: i64, each: i64) -> i64 {
    match each {
        0 => i64::MAX,
        each => have.max(0) / each,
    }
}

/// Places the shards first, on the nodes with the fewest GPUs, then the workers on the rest. It is
/// the second attempt, because it is not known beforehand which resource is scarce.
fn shards_first(
    free: &[FreeNode],
    shape: &GangShape,
    kind: u16,
    (workers, ps_shards): (u32, u32),
    when: Availability,
) -> Option<Vec<NodeTaskCounts>> {
    let mut left = free.to_vec();
    let mut shares: Vec<NodeTaskCounts> = Vec::new();
    let shard = HostCapacity::shard(&shape.ps_shard);
    for _ in 0..ps_shards {
        let roomy = (0_u32..)
            .zip(&left)
            .filter(|(_, node)| node.takes_shard(shape, when));
        let (node, _) = roomy.min_by_key(|(index, node)| {
            (node.gpus(when), Reverse(node.room(when).cpu_milli), *index)
        })?;
        left[node as usize].take_room(shard, when);
        match shares.iter_mut().find(|share| share.node == node) {
            Some(share) => share.ps_shards += 1,
            None => shares.push(NodeTaskCounts {
                node,
                workers: 0,
                ps_shards: 1,
            }),
        }
    }
    for part in fill(&left, shape, kind, workers, when)? {
        let workers = part.gpus / shape.worker.gpus.max(1);
        match shares.iter_mut().find(|share| share.node == part.node) {
            Some(share) => share.workers = workers,
            None => shares.push(NodeTaskCounts {
                node: part.node,
                workers,
                ps_shards: 0,
            }),
        }
    }
    Some(shares)
}
