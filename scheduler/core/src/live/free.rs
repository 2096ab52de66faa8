//! Free GPUs, CPU and memory of the nodes: what is free now, and what will be once stopping tasks are gone.
//!
//! It counts; it does not choose.

use super::gang::Shape;
use crate::snapshot::Node;
use muster_model::node::is_part;
use muster_model::spec::{PsShardResources, WorkerResources};

/// A node's free part. GPUs are bit sets over their indices: an executor offers at most 64. A node that takes no tasks has nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FreeNode {
    /// Its place in the snapshot.
    pub index: u32,
    pub kind: u16,
    /// As in the problem: 0 is where nobody said.
    pub rack: u32,
    pub open: bool,
    /// Its GPUs are parts of GPUs, of which a task gets one.
    pub parts: bool,
    /// Its tasks are pods.
    pub pods: bool,
    /// Held by nobody.
    pub now: u64,
    /// Held by tasks that stop.
    pub later: u64,
    /// Those that are Muster's to give, held or not.
    pub ours: u64,
    /// Given back so short a time ago that nobody grows into them.
    pub fresh: u64,
    /// CPU and memory that nobody holds.
    pub now_room: Room,
    /// CPU and memory once the stopping tasks are gone, less what is promised.
    pub later_room: Room,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Room {
    pub cpu_milli: i64,
    pub memory_bytes: i64,
}

/// What a job's unreleased tasks hold on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holding {
    pub node: u32,
    pub gpus: u64,
    pub room: Room,
}

/// Whether something is to be had at once, or may wait for stopping tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    Now,
    Later,
}

impl FreeNode {
    /// The whole node, or nothing if it takes no tasks.
    pub(crate) fn empty(node: &Node, index: u32, (kind, rack): (u16, u32)) -> Self {
        let open = node.is_open();
        let room = Room {
            cpu_milli: signed(node.cpu_milli),
            memory_bytes: signed(node.memory_bytes),
        };
        let room = if open { room } else { Room::default() };
        let ours = first_bits(node.gpus) & !bits(&node.taken);
        Self {
            index,
            kind,
            rack,
            open,
            parts: is_part(&node.gpu_model),
            pods: node.has_pods(),
            now: if open { ours } else { 0 },
            later: 0,
            ours,
            fresh: 0,
            now_room: room,
            later_room: room,
        }
    }

    /// Whether tasks of this shape can be there at all.
    pub(crate) fn suits(&self, shape: &Shape) -> bool {
        (self.pods || !shape.pods) && !shape.unfit.contains(self.index)
    }

    /// Whether new ones may go there, room or none.
    pub(crate) fn takes(&self, shape: &Shape) -> bool {
        self.open && self.suits(shape)
    }

    /// Takes what running tasks hold.
    pub(crate) fn hold(&mut self, held: &Holding) {
        if self.open {
            self.now &= !held.gpus;
            self.now_room.take(held.room);
            self.later_room.take(held.room);
        }
    }

    /// Keeps what somebody is on its way to, be it free now or once its own tasks are gone.
    pub(crate) fn keep(&mut self, held: &Holding) {
        self.hold(held);
        self.later &= !held.gpus;
    }

    /// What was held goes once its tasks are gone.
    pub(crate) fn release_later(&mut self, held: &Holding) {
        if self.open {
            self.later |= held.gpus & self.ours;
            self.later_room.give(held.room);
        }
    }

    /// What was to go later has gone.
    pub(crate) fn give_back(&mut self, held: &Holding) {
        self.give_back_but(held, 0);
    }

    /// And these of them another has from then on.
    pub(crate) fn give_back_but(&mut self, held: &Holding, inherited: u64) {
        if self.open {
            self.later &= !held.gpus;
            self.now |= held.gpus & self.ours & !inherited;
            self.now_room.give(held.room);
        }
    }

    pub(crate) fn gpus(&self, when: When) -> u32 {
        match when {
            When::Now => self.now.count_ones(),
            When::Later => (self.now | self.later).count_ones(),
        }
    }

    /// Those that one task can have.
    pub(crate) fn gpus_of_a_task(&self, when: When) -> u32 {
        match self.parts {
            true => self.gpus(when).min(1),
            false => self.gpus(when),
        }
    }

    /// Whether so many more GPUs are there only with some that have just been given back.
    pub(crate) fn needs_fresh(&self, gpus: u32) -> bool {
        let fresh = self.now & self.fresh;
        fresh != 0 && gpus > ((self.now | self.later) & !fresh).count_ones()
    }

    /// What is there now is there only as far as it is not promised to somebody who waits for the rest of it.
    pub(crate) fn room(&self, when: When) -> Room {
        match when {
            When::Later => self.later_room,
            When::Now => Room {
                cpu_milli: self.now_room.cpu_milli.min(self.later_room.cpu_milli),
                memory_bytes: self.now_room.memory_bytes.min(self.later_room.memory_bytes),
            },
        }
    }

    /// Takes `count` GPUs: now only free ones; later those that stop first, so that free ones stay for who can start.
    pub(crate) fn take_gpus(&mut self, count: u32, when: When) -> u64 {
        let mut taken = 0;
        for _ in 0..count {
            let from = if when == When::Later && self.later != 0 {
                &mut self.later
            } else {
                &mut self.now
            };
            assert!(*from != 0, "a placement takes a GPU that is not there");
            let lowest = *from & from.wrapping_neg();
            taken |= lowest;
            *from &= !lowest;
        }
        taken
    }

    pub(crate) fn take_room(&mut self, room: Room, when: When) {
        self.later_room.take(room);
        if when == When::Now {
            self.now_room.take(room);
        }
    }
}

impl Room {
    pub(crate) fn worker(worker: &WorkerResources) -> Self {
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
        // Who asks for nothing fits even where more is promised than there is.
        (other.cpu_milli == 0 || self.cpu_milli >= other.cpu_milli)
            && (other.memory_bytes == 0 || self.memory_bytes >= other.memory_bytes)
    }
}

pub(crate) fn bits(gpus: &[u32]) -> u64 {
    gpus.iter()
        .filter(|&&gpu| gpu < u64::BITS)
        .fold(0, |set, gpu| set | 1 << gpu)
}

/// The indices in a bit set, ascending.
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
