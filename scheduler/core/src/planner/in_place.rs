//! Resize in place: which tasks of a running job remain, leave and join.
//!
//! This module changes no state. It computes the change, or finds that only a restart is possible.

use super::free::{Availability, FreeNode, HostCapacity, indices};
use super::gang::GangShape;
use super::planned_job::PlannedJob;
use crate::plan::PlannedTask;
use crate::problem::NodeAllocation;
use crate::snapshot::{SnapshotNode, SnapshotTask};
use muster_model::id::TaskId;
use muster_model::job::JobState;
use muster_model::task::{Role, TaskState};
use std::collections::BTreeMap;

/// Change of a task set. Nodes are indices in the snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TaskSetChange {
    pub leave: Vec<TaskId>,
    /// Role, node and GPUs of each joining task.
    pub join: Vec<(Role, u32, u64)>,
}

/// Whether a job can be resized in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InPlace {
    Now(TaskSetChange),
    /// Possible once stopping tasks have ended.
    Later,
    /// Possible only by a restart.
    Never,
}

/// Whether the tasks of a job may be changed: all of them are up, and no resize is in progress.
pub(crate) fn is_able(live: &PlannedJob<'_>) -> bool {
    let job = live.job;
    job.in_place
        && live.state == JobState::Running
        && !live.is_resizing
        && tasks(live).all(|(_, task)| task.state == TaskState::Running)
}

/// Change to workers on `parts` and `ps_shards` shards, or to fewer shards if there is no room.
pub(crate) fn resize(
    live: &PlannedJob<'_>,
    free: &[FreeNode],
    parts: &[NodeAllocation],
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
    let mut change = TaskSetChange::default();
    let mut ranks = Vec::new();
    for (node, task) in workers(live) {
        let left = wanted.get_mut(&node).filter(|left| **left > 0);
        match (left, task.role) {
            (Some(left), Role::Worker { rank }) => {
                *left -= 1;
                ranks.push(rank);
            }
            // The coordinator (rank 0) cannot leave, because it leads the joining workers.
            (None, Role::Worker { rank: 0 }) => return InPlace::Never,
            _ => change.leave.push(task.id),
        }
    }
    let mut free = free.to_vec();
    let worker = HostCapacity::worker(&live.shape.worker);
    for (&node, &count) in wanted.iter().filter(|&(_, &count)| count > 0) {
        let there = &mut free[node as usize];
        let (gpus, room) = (live.shape.gpus(count), worker.times(count));
        if !there.has(gpus, room, Availability::Now) {
            return if there.has(gpus, room, Availability::Later) {
                InPlace::Later
            } else {
                InPlace::Never
            };
        }
        for _ in 0..count {
            let rank = unused(&mut ranks);
            let gpus = there.take_gpus(live.shape.worker.gpus, Availability::Now);
            there.take_room(worker, Availability::Now);
            change.join.push((Role::Worker { rank }, node, gpus));
        }
    }
    shards(live, &mut free, ps_shards, &mut change);
    if change == TaskSetChange::default() {
        return InPlace::Never;
    }
    InPlace::Now(change)
}

/// Change that adds shards in place of lost ones, as far as there is room. `None` if there are
/// enough shards, or no room.
pub(crate) fn restore(live: &PlannedJob<'_>, free: &[FreeNode]) -> Option<TaskSetChange> {
    let least = live.shape.ps_shards.min;
    if !live.job.replicated || shards_of(live) >= least {
        return None;
    }
    reshard(live, free, least)
}

/// Change of the number of shards alone, as far as there is room for more. `None` if nothing
/// changes.
pub(crate) fn reshard(
    live: &PlannedJob<'_>,
    free: &[FreeNode],
    ps_shards: u32,
) -> Option<TaskSetChange> {
    if !is_able(live) {
        return None;
    }
    let mut change = TaskSetChange::default();
    shards(live, &mut free.to_vec(), ps_shards, &mut change);
    (change != TaskSetChange::default()).then_some(change)
}

/// Change that removes GPUs; the highest ranks leave. `None` if fewer workers than the minimum
/// would remain, or if a resize in place is not possible.
pub(crate) fn shrink(live: &PlannedJob<'_>, gpus: u32) -> Option<TaskSetChange> {
    let leavers = gpus.div_ceil(live.shape.worker.gpus.max(1)) as usize;
    let workers: Vec<(u32, &SnapshotTask)> = workers(live).collect();
    let mut stay = workers.len().checked_sub(leavers)?;
    while stay > 0 && !live.shape.takes(u32::try_from(stay).unwrap_or(u32::MAX)) {
        stay -= 1;
    }
    if !is_able(live) || leavers == 0 || stay < live.shape.workers.min.max(1) as usize {
        return None;
    }
    let leave = workers[stay..].iter().map(|(_, task)| task.id).collect();
    let join = Vec::new();
    Some(TaskSetChange { leave, join })
}

/// Change that removes all tasks from the nodes in `gone`. For each shard there another joins
/// elsewhere, if there is room. The old shard serves until the new one has its content. `None` if
/// the coordinator would leave, or too few workers or shards would remain.
pub(crate) fn without(
    live: &PlannedJob<'_>,
    free: &[FreeNode],
    gone: impl Fn(u32) -> bool,
) -> Option<TaskSetChange> {
    let (leave, stay): (Vec<_>, Vec<_>) = tasks(live).partition(|&(node, _)| gone(node));
    let leads = leave
        .iter()
        .any(|(_, task)| task.role == Role::Worker { rank: 0 });
    let workers = stay.iter().filter(|(_, task)| task.is_worker());
    let left = u32::try_from(workers.count()).unwrap_or(u32::MAX);
    let enough = left >= live.shape.workers.min && live.shape.takes(left);
    if !is_able(live) || leave.is_empty() || leads || !enough {
        return None;
    }
    let mut change = TaskSetChange {
        leave: leave.into_iter().map(|(_, task)| task.id).collect(),
        join: Vec::new(),
    };
    let wanted = shards_of(live).min(live.shape.ps_shards.max);
    shards(live, &mut free.to_vec(), wanted, &mut change);
    (change.shards_after(live) >= fewest_shards(live)).then_some(change)
}

impl TaskSetChange {
    /// GPUs of the joining tasks.
    pub(crate) fn joining_gpus(&self) -> u32 {
        self.join.iter().map(|(_, _, gpus)| gpus.count_ones()).sum()
    }

    /// Number of shards after the change.
    pub(crate) fn shards_after(&self, live: &PlannedJob<'_>) -> u32 {
        let shards = tasks(live).filter(|(_, task)| !task.is_worker());
        let stay = shards.filter(|(_, task)| !self.leave.contains(&task.id));
        let roles = self.join.iter().map(|(role, ..)| role);
        let join = roles.filter(|role| matches!(role, Role::PsShard { .. }));
        u32::try_from(stay.count() + join.count()).unwrap_or(u32::MAX)
    }

    /// The change without its joining tasks; `None` if no task leaves, or too few would remain.
    pub(crate) fn only_leaving(&self, live: &PlannedJob<'_>) -> Option<Self> {
        let first = Self {
            leave: self.leave.clone(),
            join: Vec::new(),
        };
        let workers = tasks(live).filter(|(_, task)| task.is_worker());
        let stay = workers.filter(|(_, task)| !self.leave.contains(&task.id));
        let left = u32::try_from(stay.count()).unwrap_or(u32::MAX);
        let enough = left >= live.shape.workers.min.max(1)
            && live.shape.takes(left)
            && first.shards_after(live) >= fewest_shards(live);
        (enough && !first.leave.is_empty()).then_some(first)
    }

    /// The joining tasks for the plan.
    pub(crate) fn tasks(&self, nodes: &[SnapshotNode]) -> Vec<PlannedTask> {
        let join = self.join.iter().map(|&(role, node, gpus)| PlannedTask {
            role,
            node: nodes[node as usize].id,
            gpus: indices(gpus),
        });
        join.collect()
    }
}

/// Tasks that remain in this round so far, each with its node.
fn tasks<'l>(live: &'l PlannedJob<'_>) -> impl Iterator<Item = (u32, &'l SnapshotTask)> {
    let tasks = live.places.iter().copied().zip(&live.job.tasks);
    tasks.filter(|(_, task)| !live.leaving_tasks.contains(&task.id))
}

/// Workers in order of rank, each with its node.
fn workers<'l>(live: &'l PlannedJob<'_>) -> impl Iterator<Item = (u32, &'l SnapshotTask)> {
    let mut workers: Vec<(u32, &SnapshotTask)> =
        tasks(live).filter(|(_, task)| task.is_worker()).collect();
    workers.sort_by_key(|(_, task)| task.role);
    workers.into_iter()
}

/// Lowest unused rank or index.
fn unused(taken: &mut Vec<u32>) -> u32 {
    let free = (0..).find(|one| !taken.contains(one)).unwrap_or(u32::MAX);
    taken.push(free);
    free
}

/// Present number of shards.
fn shards_of(live: &PlannedJob<'_>) -> u32 {
    TaskSetChange::default().shards_after(live)
}

/// Minimum number of shards after a change. A job below its owner's minimum may keep its present
/// number.
fn fewest_shards(live: &PlannedJob<'_>) -> u32 {
    live.shape.ps_shards.min.min(shards_of(live))
}

/// Adjusts the number of shards to `wanted`. The highest indices leave. New shards go to nodes of
/// the job's workers while there is room, then to any node. A leaving and a joining shard may exist
/// at the same time, so they never have the same index.
fn shards(live: &PlannedJob<'_>, free: &mut [FreeNode], wanted: u32, change: &mut TaskSetChange) {
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
    let shard = HostCapacity::shard(&live.shape.ps_shard);
    while there < wanted {
        let near = beside
            .iter()
            .filter(|&(&node, _)| free[node as usize].takes_shard(&live.shape, Availability::Now))
            .min_by_key(|&(&node, &count)| (count, node))
            .map(|(&node, _)| node);
        let Some(node) = near.or_else(|| first_for_shard(free, &live.shape)) else {
            return;
        };
        free[node as usize].take_room(shard, Availability::Now);
        *beside.entry(node).or_default() += 1;
        let index = unused(&mut indices);
        change.join.push((Role::PsShard { index }, node, 0));
        there += 1;
    }
}

/// The first node on which a shard may be placed now.
fn first_for_shard(free: &[FreeNode], shape: &GangShape) -> Option<u32> {
    let mut nodes = (0_u32..).zip(free);
    let (node, _) = nodes.find(|(_, node)| node.takes_shard(shape, Availability::Now))?;
    Some(node)
}
