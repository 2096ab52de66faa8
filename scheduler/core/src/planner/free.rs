//! Free GPUs, CPU and memory of the nodes: free now, and free once stopping tasks have ended.
//!
//! This module counts and decides nothing.

use super::gang::GangShape;
use crate::snapshot::SnapshotNode;
use muster_model::node::is_part;
use muster_model::spec::{PsShardResources, WorkerDemand};
use std::collections::BTreeMap;

/// Free resources of a node; none if the node takes no tasks. GPUs are bit sets over their indices:
/// an executor offers at most 64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FreeNode {
    /// Index in the snapshot.
    pub index: u32,
    pub kind: u16,
    /// Rack as in the problem; 0 if it is not configured.
    pub rack: u32,
    /// Speed in percent of the typical node of the kind.
    pub speed_percent: u16,
    pub open: bool,
    /// Whether its GPUs are parts of GPUs (MIG instances), of which a task gets one.
    pub parts: bool,
    /// Whether its GPUs are CPU slots.
    pub cpu_slots: bool,
    /// Whether its tasks are pods.
    pub pods: bool,
    /// Free GPUs.
    pub now: u64,
    /// GPUs of stopping tasks.
    pub later: u64,
    /// GPUs that Muster can allocate, held or free.
    pub ours: u64,
    /// GPUs released so recently that no running job grows into them.
    pub fresh: u64,
    /// GPUs that are given to no job, because suspended programs keep memory there. A program
    /// resumes on them.
    pub withheld: u64,
    /// Free CPU and memory.
    pub now_room: HostCapacity,
    /// Free CPU and memory once stopping tasks have ended, minus promised amounts.
    pub later_room: HostCapacity,
}

/// Bit sets of GPUs by node.
pub(crate) type NodeGpuMasks = BTreeMap<u32, u64>;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HostCapacity {
    pub cpu_milli: i64,
    pub memory_bytes: i64,
}

/// Resources that the unreleased tasks of a job hold on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holding {
    pub node: u32,
    pub gpus: u64,
    pub room: HostCapacity,
}

/// Whether resources must be free now, or may belong to stopping tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Availability {
    Now,
    Later,
}

impl FreeNode {
    /// The whole node; nothing if it takes no tasks.
    pub(crate) fn empty(node: &SnapshotNode, index: u32, (kind, rack): (u16, u32)) -> Self {
        let open = node.is_open();
        let room = HostCapacity {
            cpu_milli: signed(node.cpu_milli),
            memory_bytes: signed(node.memory_bytes),
        };
        let room = if open { room } else { HostCapacity::default() };
        let ours = first_bits(node.gpus) & !bits(&node.taken);
        Self {
            index,
            kind,
            rack,
            speed_percent: node.speed_percent(),
            open,
            parts: is_part(&node.gpu_model),
            cpu_slots: node.cpu_slots,
            pods: node.has_pods(),
            now: if open { ours } else { 0 },
            later: 0,
            ours,
            fresh: 0,
            withheld: 0,
            now_room: room,
            later_room: room,
        }
    }

    /// Whether tasks of this shape can run on the node at all.
    pub(crate) fn suits(&self, shape: &GangShape) -> bool {
        shape.nodes.contains(self.index)
    }

    /// Whether new tasks of this shape may be placed on the node, free or not.
    pub(crate) fn takes(&self, shape: &GangShape) -> bool {
        self.open && self.suits(shape)
    }

    /// Subtracts what running tasks hold.
    pub(crate) fn hold(&mut self, held: &Holding) {
        if self.open {
            self.now &= !held.gpus;
            self.now_room.take(held.room);
            self.later_room.take(held.room);
        }
    }

    /// Reserves resources of a moving job: those that are free now, or once its own tasks have
    /// ended.
    pub(crate) fn keep(&mut self, held: &Holding) {
        self.hold(held);
        self.later &= !held.gpus;
    }

    /// Marks resources as free once their tasks have ended.
    pub(crate) fn release_later(&mut self, held: &Holding) {
        if self.open {
            self.later |= held.gpus & self.ours;
            self.later_room.give(held.room);
        }
    }

    /// Releases resources of tasks that have ended.
    pub(crate) fn give_back(&mut self, held: &Holding) {
        self.give_back_but(held, 0);
    }

    /// Releases resources, except for GPUs that another job inherits.
    pub(crate) fn give_back_but(&mut self, held: &Holding, inherited: u64) {
        if self.open {
            self.later &= !held.gpus;
            self.now |= held.gpus & self.ours & !inherited;
            self.now_room.give(held.room);
        }
    }

    pub(crate) fn gpus(&self, when: Availability) -> u32 {
        match when {
            Availability::Now => (self.now & !self.withheld).count_ones(),
            Availability::Later => ((self.now | self.later) & !self.withheld).count_ones(),
        }
    }

    /// Number of GPUs, then of CPU slots, beside which CPU and memory are worth keeping.
    pub(crate) fn gpus_beside_cpu(&self, when: Availability) -> (u32, u32) {
        let count = self.gpus(when);
        if self.cpu_slots {
            (0, count)
        } else {
            (count, 0)
        }
    }

    /// Maximum number of GPUs of one task.
    pub(crate) fn gpus_of_a_task(&self, when: Availability) -> u32 {
        if self.parts {
            self.gpus(when).min(1)
        } else {
            self.gpus(when)
        }
    }

    /// Whether `gpus` more are available only with GPUs released a moment ago.
    pub(crate) fn needs_fresh(&self, gpus: u32) -> bool {
        let fresh = self.now & self.fresh & !self.withheld;
        let not_given = self.fresh & self.now | self.withheld;
        fresh != 0 && gpus > ((self.now | self.later) & !not_given).count_ones()
    }

    /// CPU and memory at that time. Present ones exclude what is promised to jobs that wait for the
    /// rest of their resources.
    pub(crate) fn room(&self, when: Availability) -> HostCapacity {
        match when {
            Availability::Later => self.later_room,
            Availability::Now => HostCapacity {
                cpu_milli: self.now_room.cpu_milli.min(self.later_room.cpu_milli),
                memory_bytes: self.now_room.memory_bytes.min(self.later_room.memory_bytes),
            },
        }
    }

    /// Whether this number of GPUs and this CPU and memory are available.
    pub(crate) fn has(&self, gpus: u32, room: HostCapacity, when: Availability) -> bool {
        self.gpus(when) >= gpus && self.room(when).holds(room)
    }

    /// Whether one more PS shard of this shape may be placed on the node.
    pub(crate) fn takes_shard(&self, shape: &GangShape, when: Availability) -> bool {
        self.takes(shape) && self.room(when).holds(HostCapacity::shard(&shape.ps_shard))
    }

    /// Takes `count` GPUs. For `Later`, GPUs of stopping tasks come first, so that free ones stay
    /// available for jobs that can start.
    pub(crate) fn take_gpus(&mut self, count: u32, when: Availability) -> u64 {
        let mut taken = 0;
        for _ in 0..count {
            let from = if when == Availability::Later && self.later & !self.withheld != 0 {
                &mut self.later
            } else {
                &mut self.now
            };
            let there = *from & !self.withheld;
            assert!(there != 0, "a placement takes a GPU that is not there");
            let lowest = there & there.wrapping_neg();
            taken |= lowest;
            *from &= !lowest;
        }
        taken
    }

    pub(crate) fn take_room(&mut self, room: HostCapacity, when: Availability) {
        self.later_room.take(room);
        if when == Availability::Now {
            self.now_room.take(room);
        }
    }
}

impl HostCapacity {
    pub(crate) fn worker(worker: &WorkerDemand) -> Self {
        Self {
            cpu_milli: signed(worker.cpu_milli),
            memory_bytes: signed(worker.memory_bytes),
        }
    }

    pub(crate) fn shard(shard: &PsShardResources) -> Self {
        Self {
            cpu_milli: signed(shard.cpu_milli),
            memory_bytes: signed(shard.memory_bytes),
        }
    }

    pub(crate) fn take(&mut self, other: Self) {
        self.cpu_milli = self.cpu_milli.saturating_sub(other.cpu_milli);
        self.memory_bytes = self.memory_bytes.saturating_sub(other.memory_bytes);
    }

    pub(crate) fn give(&mut self, other: Self) {
        self.cpu_milli = self.cpu_milli.saturating_add(other.cpu_milli);
        self.memory_bytes = self.memory_bytes.saturating_add(other.memory_bytes);
    }

    pub(crate) fn times(self, count: u32) -> Self {
        Self {
            cpu_milli: self.cpu_milli.saturating_mul(i64::from(count)),
            memory_bytes: self.memory_bytes.saturating_mul(i64::from(count)),
        }
    }

    pub(crate) fn holds(self, other: Self) -> bool {
        // A request for nothing fits even if more is promised than exists.
        (other.cpu_milli == 0 || self.cpu_milli >= other.cpu_milli)
            && (other.memory_bytes == 0 || self.memory_bytes >= other.memory_bytes)
    }
}

/// Total number of GPUs.
pub(crate) fn gpus_of(holdings: &[Holding]) -> u32 {
    holdings.iter().map(|held| held.gpus.count_ones()).sum()
}

/// Number of GPUs in the bit sets.
pub(crate) fn count_gpus(gpus: &NodeGpuMasks) -> u32 {
    gpus.values().map(|gpus| gpus.count_ones()).sum()
}

pub(crate) fn bits(gpus: &[u32]) -> u64 {
    gpus.iter()
        .filter(|&&gpu| gpu < u64::BITS)
        .fold(0, |set, gpu| set | 1 << gpu)
}

/// Indices in a bit set, ascending.
pub(crate) fn indices(mut set: u64) -> Vec<u32> {
    let mut found = Vec::with_capacity(set.count_ones() as usize);
    while set != 0 {
        found.push(set.trailing_zeros());
        set &= set - 1;
    }
    found
}

pub(crate) fn first_bits(count: u32) -> u64 {
    if count >= u64::BITS {
        u64::MAX
    } else {
        (1 << count) - 1
    }
}

fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}
