//! Free resources by node. Every placement takes from them.

use super::{Demand, NodeAllocation, NodeSet, SchedulingProblem};
use std::sync::Arc;

/// Free resources of every node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreeResources {
    /// Free GPUs by node.
    pub free: Vec<u32>,
    /// Free CPU and memory by node.
    room: Vec<HostResources>,
    /// Sets of nodes to which demands refer.
    node_sets: Arc<[NodeSet]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HostResources {
    cpu_milli: u64,
    memory_bytes: u64,
}

impl FreeResources {
    /// Returns the resources of an empty cluster.
    #[must_use]
    pub fn empty(problem: &SchedulingProblem) -> Self {
        Self {
            free: problem.nodes.iter().map(|node| node.gpus).collect(),
            room: problem
                .nodes
                .iter()
                .map(|node| HostResources {
                    cpu_milli: node.cpu_milli,
                    memory_bytes: node.memory_bytes,
                })
                .collect(),
            node_sets: Arc::clone(&problem.node_sets),
        }
    }

    /// Returns the resources that are free while all jobs keep their allocations.
    #[must_use]
    pub fn present(problem: &SchedulingProblem) -> Self {
        let mut tally = Self::empty(problem);
        for job in &problem.jobs {
            tally.take(&job.present, &job.unit);
        }
        tally
    }

    /// Returns the resources that the jobs without [`is_movable`](super::ProblemJob::is_movable)
    /// leave.
    #[must_use]
    pub fn beside_fixed(problem: &SchedulingProblem) -> Self {
        let mut tally = Self::empty(problem);
        for job in problem.jobs.iter().filter(|job| !job.is_movable()) {
            tally.take(&job.present, &job.unit);
        }
        tally
    }

    /// Returns the resources that are free in both tallies.
    #[must_use]
    pub fn common(&self, other: &Self) -> Self {
        let free = self.free.iter().zip(&other.free);
        let room = self.room.iter().zip(&other.room);
        Self {
            free: free.map(|(a, b)| *a.min(b)).collect(),
            room: room
                .map(|(a, b)| HostResources {
                    cpu_milli: a.cpu_milli.min(b.cpu_milli),
                    memory_bytes: a.memory_bytes.min(b.memory_bytes),
                })
                .collect(),
            node_sets: Arc::clone(&self.node_sets),
        }
    }

    /// Returns the number of free GPUs.
    #[must_use]
    pub fn gpus(&self) -> u32 {
        self.free.iter().sum()
    }

    /// Whether a job of this unit may run on a node at all.
    #[must_use]
    pub fn allows(&self, node: usize, unit: &Demand) -> bool {
        unit.nodes.contains(&self.node_sets, node)
    }

    /// Returns the GPUs of a node that a job of this unit can take: whole units, within CPU and
    /// memory. It is 0 on a node where the job may not run.
    #[must_use]
    pub fn available(&self, node: usize, unit: &Demand) -> u32 {
        if !self.allows(node, unit) {
            return 0;
        }
        let gpus = unit.gpus.max(1);
        let mut units = u64::from(self.free[node] / gpus);
        let room = self.room[node];
        units = units_within(room.cpu_milli, unit.cpu_milli, units);
        units = units_within(room.memory_bytes, unit.memory_bytes, units);
        // At most the free GPUs, which are a u32.
        u32::try_from(units).unwrap_or(u32::MAX) * gpus
    }

    /// Whether all of the parts are free.
    #[must_use]
    pub fn holds(&self, parts: &[NodeAllocation], unit: &Demand) -> bool {
        parts.iter().all(|part| {
            let of_node = parts.iter().filter(|other| other.node == part.node);
            let wanted: u32 = of_node.map(|other| other.gpus).sum();
            self.available(part.node as usize, unit) >= wanted
        })
    }

    /// Takes the parts. A node that was lost or shrunk while a job held it has 0 left.
    pub fn take(&mut self, parts: &[NodeAllocation], unit: &Demand) {
        for part in parts {
            let node = part.node as usize;
            let units = u64::from(part.gpus / unit.gpus.max(1));
            self.free[node] = self.free[node].saturating_sub(part.gpus);
            let room = &mut self.room[node];
            room.cpu_milli = room.cpu_milli.saturating_sub(unit.cpu_milli * units);
            room.memory_bytes = room.memory_bytes.saturating_sub(unit.memory_bytes * units);
        }
    }

    /// Releases the parts.
    pub fn give(&mut self, parts: &[NodeAllocation], unit: &Demand) {
        for part in parts {
            let node = part.node as usize;
            let units = u64::from(part.gpus / unit.gpus.max(1));
            self.free[node] += part.gpus;
            self.room[node].cpu_milli += unit.cpu_milli * units;
            self.room[node].memory_bytes += unit.memory_bytes * units;
        }
    }
}

/// Returns how many of `units` units fit, each of which takes `each` of `have`.
fn units_within(have: u64, each: u64, units: u64) -> u64 {
    // A product is cheaper than a quotient, and most nodes have more CPU and memory than their GPUs
    // need.
    match each.checked_mul(units) {
        Some(all) if all <= have => units,
        _ => have / each,
    }
}
