//! A running job in another size without a restart: which of its tasks train on, which leave and which join them.
//!
//! It touches nothing: the round says what it wants, this says how, or that it has to be a restart.

use super::free::{FreeNode, Room, When, indices};
use super::world::LiveJob;
use crate::plan::PlannedTask;
use crate::problem::Part;
use crate::snapshot::{Node, Task};
use muster_model::id::TaskId;
use muster_model::job::JobState;
use muster_model::task::{Role, TaskState};
use std::collections::BTreeMap;

/// What changes of a task set. Nodes by their place in the snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Change {
    pub leave: Vec<TaskId>,
    /// Role, node and GPUs of everybody who joins.
    pub join: Vec<(Role, u32, u64)>,
}

/// Whether a job can take another size in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InPlace {
    Now(Change),
    /// As soon as tasks have gone that stop.
    Later,
    /// By a restart only.
    Never,
}

/// A job whose tasks may be changed: all of them are up and nothing is under way.
pub(crate) fn is_able(live: &LiveJob<'_>) -> bool {
    let job = live.job;
    let up = |(_, task): (u32, &Task)| task.state == TaskState::Running;
    job.in_place && live.state == JobState::Running && !live.is_resizing && tasks(live).all(up)
}

/// The job with its workers on `parts` and that many shards, as far as there is room for more shards.
pub(crate) fn resize(
    live: &LiveJob<'_>,
    free: &[FreeNode],
    parts: &[Part],
    ps_shards: u32,
) -> InPlace {
    if !is_able(live) {
        return InPlace::Never;
    }
    let per_worker = live.shape.worker.gpus.max(1);
    let mut wanted: BTreeMap<u32, u32> = BTreeMap::new();
    for part in parts {
        *wanted.entry(part.node).or_default() += part.gpus / per_worker;
    }
    let mut change = Change::default();
    let mut ranks = Vec::new();
    for (node, task) in workers(live) {
        let left = wanted.get_mut(&node).filter(|left| **left > 0);
        match (left, task.role) {
            (Some(left), Role::Worker { rank }) => {
                *left -= 1;
                ranks.push(rank);
            }
            // The chief leads whoever comes.
            (None, Role::Worker { rank: 0 }) => return InPlace::Never,
            _ => change.leave.push(task.id),
        }
    }
    let mut free = free.to_vec();
    let worker = Room::worker(&live.shape.worker);
    for (&node, &count) in wanted.iter().filter(|&(_, &count)| count > 0) {
        let there = &mut free[node as usize];
        let gpus = live.shape.gpus(count);
        let has = |when| there.gpus(when) >= gpus && there.room(when).holds(worker.times(count));
        if !has(When::Now) {
            return if has(When::Later) {
                InPlace::Later
            } else {
                InPlace::Never
            };
        }
        for _ in 0..count {
            let rank = unused(&mut ranks);
            let gpus = there.take_gpus(live.shape.worker.gpus, When::Now);
            there.take_room(worker, When::Now);
            change.join.push((Role::Worker { rank }, node, gpus));
        }
    }
    shards(live, &mut free, ps_shards, &mut change);
    if change == Change::default() {
        return InPlace::Never;
    }
    InPlace::Now(change)
}

/// The job with the shards again that it has lost, as far as there is room for them; `None` where it has enough, or there is none.
pub(crate) fn restore(live: &LiveJob<'_>, free: &[FreeNode]) -> Option<Change> {
    let least = live.shape.ps_shards.min;
    if !live.job.replicated || shards_of(live) >= least {
        return None;
    }
    reshard(live, free, least)
}

/// The job with so many shards and the workers that it has, as far as there is room for more; `None` where that changes nothing.
pub(crate) fn reshard(live: &LiveJob<'_>, free: &[FreeNode], ps_shards: u32) -> Option<Change> {
    if !is_able(live) {
        return None;
    }
    let mut change = Change::default();
    shards(live, &mut free.to_vec(), ps_shards, &mut change);
    (change != Change::default()).then_some(change)
}

/// The job without so many GPUs: the highest ranks leave. `None` where that is less than its least, or than a worker.
pub(crate) fn shrink(live: &LiveJob<'_>, gpus: u32) -> Option<Change> {
    let leavers = gpus.div_ceil(live.shape.worker.gpus.max(1)) as usize;
    let workers: Vec<(u32, &Task)> = workers(live).collect();
    let mut stay = workers.len().checked_sub(leavers)?;
    while stay > 0 && !live.shape.takes(u32::try_from(stay).unwrap_or(u32::MAX)) {
        stay -= 1;
    }
    if !is_able(live) || leavers == 0 || stay < live.shape.workers.min.max(1) as usize {
        return None;
    }
    let leave = workers[stay..].iter().map(|(_, task)| task.id).collect();
    let join = Vec::new();
    Some(Change { leave, join })
}

/// The job without what it has on these nodes. For each shard there another joins elsewhere, as far as there is room: the old one serves
/// until the new one has what it held. `None` where the chief, its least number of workers or of shards would be lost.
pub(crate) fn without(
    live: &LiveJob<'_>,
    free: &[FreeNode],
    gone: impl Fn(u32) -> bool,
) -> Option<Change> {
    let (leave, stay): (Vec<_>, Vec<_>) = tasks(live).partition(|&(node, _)| gone(node));
    let leads = |task: &Task| task.role == Role::Worker { rank: 0 };
    let workers = stay.iter().filter(|(_, task)| task.is_worker());
    let left = u32::try_from(workers.count()).unwrap_or(u32::MAX);
    let enough = left >= live.shape.workers.min && live.shape.takes(left);
    if !is_able(live) || leave.is_empty() || leave.iter().any(|(_, task)| leads(task)) || !enough {
        return None;
    }
    let mut change = Change {
        leave: leave.into_iter().map(|(_, task)| task.id).collect(),
        join: Vec::new(),
    };
    let wanted = shards_of(live).min(live.shape.ps_shards.max);
    shards(live, &mut free.to_vec(), wanted, &mut change);
    (change.shards_after(live) >= fewest_shards(live)).then_some(change)
}

impl Change {
    /// GPUs of those who join.
    pub(crate) fn joining_gpus(&self) -> u32 {
        self.join.iter().map(|(_, _, gpus)| gpus.count_ones()).sum()
    }

    /// How many shards the job has after it.
    pub(crate) fn shards_after(&self, live: &LiveJob<'_>) -> u32 {
        let stays = |(_, task): &(u32, &Task)| !task.is_worker() && !self.leave.contains(&task.id);
        let joins = |(role, ..): &&(Role, u32, u64)| matches!(role, Role::PsShard { .. });
        let count = tasks(live).filter(stays).count() + self.join.iter().filter(joins).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Only the first half of it, if that is one and leaves enough.
    pub(crate) fn only_leaving(&self, live: &LiveJob<'_>) -> Option<Self> {
        let first = Self {
            leave: self.leave.clone(),
            join: Vec::new(),
        };
        let stays = |(_, task): &(u32, &Task)| task.is_worker() && !self.leave.contains(&task.id);
        let left = u32::try_from(tasks(live).filter(stays).count()).unwrap_or(u32::MAX);
        let enough = left >= live.shape.workers.min.max(1)
            && live.shape.takes(left)
            && first.shards_after(live) >= fewest_shards(live);
        (enough && !first.leave.is_empty()).then_some(first)
    }

    /// As a plan names it.
    pub(crate) fn tasks(&self, nodes: &[Node]) -> Vec<PlannedTask> {
        let join = self.join.iter().map(|&(role, node, gpus)| PlannedTask {
            role,
            node: nodes[node as usize].id,
            gpus: indices(gpus),
        });
        join.collect()
    }
}

/// Whoever was not told to leave, each with its node.
fn tasks<'l>(live: &'l LiveJob<'_>) -> impl Iterator<Item = (u32, &'l Task)> {
    let tasks = live.places.iter().copied().zip(&live.job.tasks);
    tasks.filter(|(_, task)| !live.told.contains(&task.id))
}

/// By rank, each with its node.
fn workers<'l>(live: &'l LiveJob<'_>) -> impl Iterator<Item = (u32, &'l Task)> {
    let is_worker = |task: &Task| matches!(task.role, Role::Worker { .. });
    let mut workers: Vec<(u32, &Task)> = tasks(live).filter(|(_, task)| is_worker(task)).collect();
    workers.sort_by_key(|(_, task)| task.role);
    workers.into_iter()
}

/// The lowest rank or index that nobody has.
fn unused(taken: &mut Vec<u32>) -> u32 {
    let free = (0..).find(|one| !taken.contains(one)).unwrap_or(u32::MAX);
    taken.push(free);
    free
}

/// Shards that it has.
fn shards_of(live: &LiveJob<'_>) -> u32 {
    Change::default().shards_after(live)
}

/// It goes on with no fewer shards. Below what its owner wants by now it need not be more than it has.
fn fewest_shards(live: &LiveJob<'_>) -> u32 {
    live.shape.ps_shards.min.min(shards_of(live))
}

/// Brings the number of shards nearer to what is wanted: the highest indices leave; new ones stand beside the job's workers while there is
/// room, then anywhere. Who leaves may be there for as long as who takes its place, so no index is given to both.
fn shards(live: &LiveJob<'_>, free: &mut [FreeNode], wanted: u32, change: &mut Change) {
    let mut indices = Vec::new();
    let mut beside: BTreeMap<u32, u32> = BTreeMap::new();
    let mut there = 0;
    for (node, task) in tasks(live) {
        let leaves = change.leave.contains(&task.id);
        match task.role {
            Role::PsShard { index } => {
                indices.push(index);
                if !leaves && there < wanted {
                    there += 1;
                    *beside.entry(node).or_default() += 1;
                } else if !leaves {
                    change.leave.push(task.id);
                }
            }
            Role::Worker { .. } if !leaves => {
                beside.entry(node).or_default();
            }
            Role::Worker { .. } => {}
        }
    }
    for &(_, node, _) in &change.join {
        beside.entry(node).or_default();
    }
    let shard = Room::shard(&live.shape.ps_shard);
    while there < wanted {
        let has_room = |node: u32| {
            let there = &free[node as usize];
            there.takes(&live.shape) && there.room(When::Now).holds(shard)
        };
        let near = beside
            .iter()
            .filter(|&(&node, _)| has_room(node))
            .min_by_key(|&(&node, &count)| (count, node))
            .map(|(&node, _)| node);
        let anywhere = || (0..free.len() as u32).find(|&node| has_room(node));
        let Some(node) = near.or_else(anywhere) else {
            return;
        };
        free[node as usize].take_room(shard, When::Now);
        *beside.entry(node).or_default() += 1;
        let index = unused(&mut indices);
        change.join.push((Role::PsShard { index }, node, 0));
        there += 1;
    }
}
