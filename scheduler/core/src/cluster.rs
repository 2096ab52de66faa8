//! Free GPUs, CPU and memory of the nodes that take tasks: what is free now, and what will be once stopping tasks are gone.
//!
//! It counts; it does not choose.

use crate::snapshot::{Job, Snapshot};
use muster_model::id::NodeId;
use muster_model::spec::{PsShardResources, WorkerResources};
use muster_model::task::Role;

/// The free part of every open node, in the snapshot's order.
#[derive(Debug, Clone)]
pub(crate) struct Cluster {
    pub nodes: Vec<FreeNode>,
}

/// A node's free part. GPUs are bit sets over their indices: an executor offers at most 64.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FreeNode {
    pub id: NodeId,
    /// Held by nobody.
    pub now: u64,
    /// Held by tasks that stop.
    pub later: u64,
    /// CPU and memory that nobody holds.
    pub now_room: Room,
    /// CPU and memory once the stopping tasks are gone, less what is promised.
    pub later_room: Room,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    pub cpu_milli: i64,
    pub memory_bytes: i64,
}

/// Whether something is to be had at once, or may wait for stopping tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    Now,
    Later,
}

impl Cluster {
    /// All open nodes, nothing held.
    pub(crate) fn empty(snapshot: &Snapshot) -> Self {
        let nodes = snapshot
            .nodes
            .iter()
            .filter(|node| node.is_open())
            .map(|node| {
                let room = Room {
                    cpu_milli: signed(node.cpu_milli),
                    memory_bytes: signed(node.memory_bytes),
                };
                FreeNode {
                    id: node.id,
                    now: first_bits(node.gpus),
                    later: 0,
                    now_room: room,
                    later_room: room,
                }
            })
            .collect();
        Self { nodes }
    }

    /// Takes what the job's tasks hold; `stays` says whether they keep it, or are stopping.
    pub(crate) fn hold(&mut self, job: &Job, stays: bool) {
        for task in job.held_tasks() {
            let Some(node) = self.nodes.iter_mut().find(|node| node.id == task.node) else {
                continue;
            };
            let gpus = bits(&task.gpus) & (node.now | node.later);
            let room = Room::of(task.role, &job.worker, &job.ps_shard);
            node.now &= !gpus;
            node.now_room.take(room);
            if stays {
                node.later_room.take(room);
            } else {
                node.later |= gpus;
            }
        }
    }

    pub(crate) fn gpus(&self, when: When) -> u32 {
        self.nodes.iter().map(|node| node.gpus(when)).sum()
    }

    pub(crate) fn room(&self) -> Room {
        let mut sum = Room {
            cpu_milli: 0,
            memory_bytes: 0,
        };
        for node in &self.nodes {
            sum.give(Room {
                cpu_milli: node.later_room.cpu_milli.max(0),
                memory_bytes: node.later_room.memory_bytes.max(0),
            });
        }
        sum
    }
}

impl FreeNode {
    pub(crate) fn gpus(&self, when: When) -> u32 {
        match when {
            When::Now => self.now.count_ones(),
            When::Later => (self.now | self.later).count_ones(),
        }
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
    pub(crate) fn take_gpus(&mut self, count: u32, when: When) -> Vec<u32> {
        let mut taken = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let from = if when == When::Later && self.later != 0 {
                &mut self.later
            } else {
                &mut self.now
            };
            assert!(*from != 0, "a placement takes a GPU that is not there");
            taken.push(from.trailing_zeros());
            *from &= *from - 1;
        }
        taken.sort_unstable();
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
    pub(crate) fn of(role: Role, worker: &WorkerResources, ps_shard: &PsShardResources) -> Self {
        match role {
            Role::Worker { .. } => Self {
                cpu_milli: signed(worker.cpu_milli),
                memory_bytes: signed(worker.memory_bytes),
            },
            Role::PsShard { .. } => Self {
                cpu_milli: signed(ps_shard.cpu_milli),
                memory_bytes: signed(ps_shard.memory_bytes),
            },
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

fn first_bits(count: u32) -> u64 {
    if count >= u64::BITS {
        u64::MAX
    } else {
        (1 << count) - 1
    }
}

fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}
