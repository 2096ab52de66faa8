//! Which GPUs a gang gets: Optimus' placement (Peng et al., EuroSys 2018, section 4.2).
//!
//! For a given size a job runs fastest on the fewest nodes that hold it, with its workers and shards spread evenly over them. It
//! knows one gang at a time and no policy.

use crate::cluster::{Cluster, FreeNode, Room, When};
use crate::plan::PlannedTask;
use crate::snapshot::Job;
use muster_model::task::Role;
use std::cmp::Reverse;

/// So many workers and shards of one job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gang<'a> {
    pub job: &'a Job,
    pub workers: u32,
    pub ps_shards: u32,
}

/// How many workers and shards go to one node.
#[derive(Debug, Clone, Copy)]
struct Share {
    node: usize,
    gpus: u32,
    room: Room,
    workers: u32,
    ps_shards: u32,
}

impl Gang<'_> {
    pub(crate) fn min(job: &Job) -> Gang<'_> {
        Gang {
            job,
            workers: job.workers.min,
            ps_shards: job.ps_shards.min,
        }
    }

    pub(crate) fn gpus(self) -> u32 {
        self.workers.saturating_mul(self.job.worker.gpus)
    }

    fn worker_room(self) -> Room {
        Room::of(
            Role::Worker { rank: 0 },
            &self.job.worker,
            &self.job.ps_shard,
        )
    }

    fn ps_shard_room(self) -> Room {
        Room::of(
            Role::PsShard { index: 0 },
            &self.job.worker,
            &self.job.ps_shard,
        )
    }

    pub(crate) fn room(self) -> Room {
        let mut room = self.worker_room().times(self.workers);
        room.give(self.ps_shard_room().times(self.ps_shards));
        room
    }
}

/// Places the gang and takes what it needs; `None`, and nothing taken, when it does not fit.
pub(crate) fn place(cluster: &mut Cluster, gang: Gang<'_>, when: When) -> Option<Vec<PlannedTask>> {
    if cluster.gpus(when) < gang.gpus() {
        return None;
    }
    let shares = on_one_node(cluster, gang, when).or_else(|| on_several(cluster, gang, when))?;
    Some(commit(cluster, gang, &shares, when))
}

/// The fullest node that holds the whole gang, so that larger gaps stay whole. One that waits leaves free GPUs to who need not.
fn on_one_node(cluster: &Cluster, gang: Gang<'_>, when: When) -> Option<Vec<Share>> {
    let room = gang.room();
    let fits = |node: &FreeNode| node.gpus(when) >= gang.gpus() && node.room(when).holds(room);
    let (index, node) = cluster
        .nodes
        .iter()
        .enumerate()
        .filter(|(_, node)| fits(node))
        .min_by_key(|(_, node)| (spared(node, when), node.gpus(when)))?;
    let mut share = Share::of(index, node, when);
    share.workers = gang.workers;
    share.ps_shards = gang.ps_shards;
    Some(vec![share])
}

/// As few nodes as hold it, the emptiest first.
fn on_several(cluster: &Cluster, gang: Gang<'_>, when: When) -> Option<Vec<Share>> {
    let mut nodes: Vec<Share> = cluster
        .nodes
        .iter()
        .enumerate()
        .map(|(index, node)| Share::of(index, node, when))
        .collect();
    nodes.sort_by_key(|share| {
        (
            Reverse(share.gpus),
            spared(&cluster.nodes[share.node], when),
            share.node,
        )
    });
    let mut sum = 0;
    let enough = nodes.iter().position(|share| {
        sum += share.gpus / gang.job.worker.gpus.max(1);
        sum >= gang.workers
    })?;
    let mut count = (enough + 1).max(2);
    while count <= nodes.len() {
        for shards_first in [false, true] {
            if let Some(shares) = deal(&nodes[..count], gang, shards_first) {
                return Some(shares);
            }
        }
        // Steps grow so that a gang that fits nowhere is not tried on every one of a thousand nodes; all of them are tried last.
        let next = count + 1 + count / 8;
        count = if count < nodes.len() {
            next.min(nodes.len())
        } else {
            next
        };
    }
    None
}

/// GPUs that are free now and would be withheld from those who can start at once.
fn spared(node: &FreeNode, when: When) -> u32 {
    match when {
        When::Now => 0,
        When::Later => node.now.count_ones(),
    }
}

/// Deals tasks over the nodes, each to the one with the fewest of its kind that has room.
fn deal(nodes: &[Share], gang: Gang<'_>, shards_first: bool) -> Option<Vec<Share>> {
    let mut shares = nodes.to_vec();
    let workers = |shares: &mut [Share]| {
        (0..gang.workers).all(|_| {
            let room = gang.worker_room();
            let chosen = shares
                .iter_mut()
                .filter(|share| share.gpus >= gang.job.worker.gpus && share.room.holds(room))
                .min_by_key(|share| share.workers);
            chosen.is_some_and(|share| {
                share.gpus -= gang.job.worker.gpus;
                share.room.take(room);
                share.workers += 1;
                true
            })
        })
    };
    let ps_shards = |shares: &mut [Share]| {
        (0..gang.ps_shards).all(|_| {
            let room = gang.ps_shard_room();
            let chosen = shares
                .iter_mut()
                .filter(|share| share.room.holds(room))
                .min_by_key(|share| (share.ps_shards, Reverse(share.workers)));
            chosen.is_some_and(|share| {
                share.room.take(room);
                share.ps_shards += 1;
                true
            })
        })
    };
    // Who asks for more of the scarce part should come first, and which part is scarce is not known before.
    let early_shards = !shards_first || ps_shards(&mut shares);
    let fits = early_shards && workers(&mut shares) && (shards_first || ps_shards(&mut shares));
    fits.then_some(shares)
}

/// Ranks go round the nodes, so that neighbours in rank are not crowded on one of them.
fn commit(cluster: &mut Cluster, gang: Gang<'_>, shares: &[Share], when: When) -> Vec<PlannedTask> {
    let mut tasks = Vec::with_capacity((gang.workers + gang.ps_shards) as usize);
    let mut left = shares.to_vec();
    let mut rank = 0;
    while rank < gang.workers {
        for share in left.iter_mut().filter(|share| share.workers > 0) {
            let node = &mut cluster.nodes[share.node];
            let gpus = node.take_gpus(gang.job.worker.gpus, when);
            node.take_room(gang.worker_room(), when);
            tasks.push(PlannedTask {
                role: Role::Worker { rank },
                node: node.id,
                gpus,
            });
            share.workers -= 1;
            rank += 1;
        }
    }
    let mut index = 0;
    while index < gang.ps_shards {
        for share in left.iter_mut().filter(|share| share.ps_shards > 0) {
            let node = &mut cluster.nodes[share.node];
            node.take_room(gang.ps_shard_room(), when);
            tasks.push(PlannedTask {
                role: Role::PsShard { index },
                node: node.id,
                gpus: Vec::new(),
            });
            share.ps_shards -= 1;
            index += 1;
        }
    }
    tasks
}

impl Share {
    fn of(index: usize, node: &FreeNode, when: When) -> Self {
        Self {
            node: index,
            gpus: node.gpus(when),
            room: node.room(when),
            workers: 0,
            ps_shards: 0,
        }
    }
}
