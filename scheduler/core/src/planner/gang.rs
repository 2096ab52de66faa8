//! A gang on given GPUs. Its workers are where the policy put them, and its PS shards evenly beside
//! them (placement of Optimus, Peng et al., EuroSys 2018, section 4.2). CPU and memory are counted
//! per task.

use super::free::{Availability, FreeNode, Holding, HostCapacity, bits, indices};
use super::job_nodes::JobNodes;
use crate::plan::PlannedTask;
use crate::problem::NodeAllocation;
use crate::snapshot::SnapshotNode;
use muster_model::id::NodeId;
use muster_model::job::Seat;
use muster_model::spec::{PsShardResources, Range, WorkerDemand};
use muster_model::task::Role;
use std::cmp::Reverse;

/// Number of unfit nodes after which a job fails.
pub(crate) const MAX_UNFIT_NODES: usize = 8;

/// Demand of a job's tasks, and how many of them there may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GangShape {
    pub workers: Range,
    pub ps_shards: Range,
    /// Whether the number of workers must be a power of two.
    pub power_of_two: bool,
    pub worker: WorkerDemand,
    pub ps_shard: PsShardResources,
    /// Whether the tasks must be pods.
    pub pods: bool,
    /// Nodes on which the tasks may run.
    pub nodes: JobNodes,
}

/// Number of workers and shards on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeTaskCounts {
    pub node: u32,
    pub workers: u32,
    pub ps_shards: u32,
}

/// Placement of a gang, in the order of ranks and indices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct GangPlacement {
    /// Node and GPUs of each worker.
    pub workers: Vec<(u32, u64)>,
    /// Node of each shard.
    pub ps_shards: Vec<u32>,
}

impl GangShape {
    pub(crate) fn gpus(&self, workers: u32) -> u32 {
        workers.saturating_mul(self.worker.gpus)
    }

    /// Whether the power-of-two rule allows this number of workers.
    pub(crate) fn takes(&self, workers: u32) -> bool {
        !self.power_of_two || workers.is_power_of_two()
    }

    /// The smallest gang.
    pub(crate) fn least(&self) -> Self {
        let mut least = self.clone();
        least.workers.max = self.workers.min;
        least.ps_shards.max = self.ps_shards.min;
        least
    }

    pub(crate) fn min_gpus(&self) -> u32 {
        self.gpus(self.workers.min)
    }
}

/// Distributes the tasks for workers on `parts`; `None` if there is no room. Shards go to the job's
/// own nodes while there is room, each to the node with the fewest shards, then to other nodes.
pub(crate) fn at(
    free: &[FreeNode],
    shape: &GangShape,
    parts: &[NodeAllocation],
    ps_shards: u32,
    when: Availability,
) -> Option<Vec<NodeTaskCounts>> {
    let mut shares: Vec<NodeTaskCounts> = Vec::with_capacity(parts.len());
    for part in parts {
        let workers = part.gpus / shape.worker.gpus.max(1);
        match shares.iter_mut().find(|share| share.node == part.node) {
            Some(share) => share.workers += workers,
            None => shares.push(NodeTaskCounts {
                node: part.node,
                workers,
                ps_shards: 0,
            }),
        }
    }
    let worker = HostCapacity::worker(&shape.worker);
    let mut left: Vec<HostCapacity> = Vec::with_capacity(shares.len());
    for share in &shares {
        let node = &free[share.node as usize];
        let mut room = node.room(when);
        let needed = worker.times(share.workers);
        if !node.has(shape.gpus(share.workers), needed, when) || !node.suits(shape) {
            return None;
        }
        room.take(needed);
        left.push(room);
    }
    let shard = HostCapacity::shard(&shape.ps_shard);
    for _ in 0..ps_shards {
        let beside = (0..shares.len())
            .filter(|&at| left[at].holds(shard))
            .min_by_key(|&at| (shares[at].ps_shards, Reverse(shares[at].workers)));
        let at = match beside {
            Some(at) => at,
            None => {
                let node = elsewhere(free, shape, &shares, when)?;
                left.push(free[node as usize].room(when));
                shares.push(NodeTaskCounts {
                    node,
                    workers: 0,
                    ps_shards: 0,
                });
                shares.len() - 1
            }
        };
        shares[at].ps_shards += 1;
        left[at].take(shard);
    }
    Some(shares)
}

/// Node with the most free CPU among those without tasks of the gang.
fn elsewhere(
    free: &[FreeNode],
    shape: &GangShape,
    taken: &[NodeTaskCounts],
    when: Availability,
) -> Option<u32> {
    (0_u32..)
        .zip(free)
        .filter(|(index, node)| {
            node.takes_shard(shape, when) && !taken.iter().any(|share| share.node == *index)
        })
        .min_by_key(|(index, node)| (Reverse(node.room(when).cpu_milli), *index))
        .map(|(index, _)| index)
}

/// Takes the resources of the tasks. Ranks go round robin over the nodes, so that consecutive ranks
/// are on different nodes where possible.
pub(crate) fn take(
    free: &mut [FreeNode],
    shape: &GangShape,
    shares: &[NodeTaskCounts],
    when: Availability,
) -> GangPlacement {
    let mut placed = GangPlacement::default();
    let mut left = shares.to_vec();
    while left.iter().any(|share| share.workers > 0) {
        for share in left.iter_mut().filter(|share| share.workers > 0) {
            let node = &mut free[share.node as usize];
            let gpus = node.take_gpus(shape.worker.gpus, when);
            node.take_room(HostCapacity::worker(&shape.worker), when);
            placed.workers.push((share.node, gpus));
            share.workers -= 1;
        }
    }
    while left.iter().any(|share| share.ps_shards > 0) {
        for share in left.iter_mut().filter(|share| share.ps_shards > 0) {
            free[share.node as usize].take_room(HostCapacity::shard(&shape.ps_shard), when);
            placed.ps_shards.push(share.node);
            share.ps_shards -= 1;
        }
    }
    placed
}

impl GangPlacement {
    /// Number of workers and shards.
    pub(crate) fn size(&self) -> (u32, u32) {
        let workers = u32::try_from(self.workers.len()).unwrap_or(u32::MAX);
        let ps_shards = u32::try_from(self.ps_shards.len()).unwrap_or(u32::MAX);
        (workers, ps_shards)
    }

    /// Resources of the gang by node.
    pub(crate) fn holdings(&self, shape: &GangShape) -> Vec<Holding> {
        let mut holdings: Vec<Holding> = Vec::new();
        let workers = self.workers.iter().map(|&(node, gpus)| Holding {
            node,
            gpus,
            room: HostCapacity::worker(&shape.worker),
        });
        let shards = self.ps_shards.iter().map(|&node| Holding {
            node,
            gpus: 0,
            room: HostCapacity::shard(&shape.ps_shard),
        });
        for one in workers.chain(shards) {
            add(&mut holdings, one);
        }
        holdings
    }

    /// Placement stored in a job's state; `None` if one of its nodes is unknown, or if it has no
    /// workers.
    pub(crate) fn of_seats(seats: &[Seat], find: impl Fn(NodeId) -> Option<u32>) -> Option<Self> {
        let mut seats: Vec<&Seat> = seats.iter().collect();
        seats.sort_by_key(|seat| seat.role);
        let mut placed = Self::default();
        for seat in seats {
            let node = find(seat.node)?;
            match seat.role {
                Role::Worker { .. } => placed.workers.push((node, bits(&seat.gpus))),
                Role::PsShard { .. } => placed.ps_shards.push(node),
            }
        }
        (!placed.workers.is_empty()).then_some(placed)
    }

    /// The placement for a job's state.
    pub(crate) fn seats(&self, nodes: &[SnapshotNode]) -> Vec<Seat> {
        let tasks = self.tasks(nodes).into_iter();
        tasks
            .map(|task| Seat {
                role: task.role,
                node: task.node,
                gpus: task.gpus,
            })
            .collect()
    }

    /// The tasks of the placement for a plan.
    pub(crate) fn tasks(&self, nodes: &[SnapshotNode]) -> Vec<PlannedTask> {
        let workers = (0..)
            .zip(&self.workers)
            .map(|(rank, &(node, gpus))| PlannedTask {
                role: Role::Worker { rank },
                node: nodes[node as usize].id,
                gpus: indices(gpus),
            });
        let shards = (0..)
            .zip(&self.ps_shards)
            .map(|(index, &node)| PlannedTask {
                role: Role::PsShard { index },
                node: nodes[node as usize].id,
                gpus: Vec::new(),
            });
        workers.chain(shards).collect()
    }
}

/// Adds a holding to that of the same node.
pub(crate) fn add(holdings: &mut Vec<Holding>, one: Holding) {
    match holdings.iter_mut().find(|held| held.node == one.node) {
        Some(held) => {
            held.gpus |= one.gpus;
            held.room.give(one.room);
        }
        None => holdings.push(one),
    }
}
