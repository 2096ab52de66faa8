//! Moving jobs that wait for the GPUs of other stopping jobs.

use crate::snapshot::{ClusterSnapshot, SnapshotJob};
use muster_model::id::{JobId, NodeId};
use muster_model::job::{AfterStop, JobState, Seat};
use muster_model::task::TaskState;
use std::collections::{BTreeMap, BTreeSet};

type Gpu = (NodeId, u32);

/// Returns the moving jobs without tasks at whose destination a task of another job has not ended.
/// A job keeps its reservation while it waits.
pub(super) fn waiting(snapshot: &ClusterSnapshot) -> BTreeSet<JobId> {
    let moving = snapshot.jobs.iter().filter_map(|job| match &job.state {
        JobState::Stopping {
            then: AfterStop::Move { to, .. },
        } if job.held_tasks().next().is_none() => Some((job.id, to)),
        _ => None,
    });
    let mut owners: BTreeMap<Gpu, JobId> = BTreeMap::new();
    for (id, to) in moving {
        owners.extend(gpus(to).map(|gpu| (gpu, id)));
    }
    if owners.is_empty() {
        return BTreeSet::new();
    }
    let nodes: BTreeSet<NodeId> = owners.keys().map(|(node, _)| *node).collect();
    let holders = snapshot.jobs.iter().filter(|job| has_task_on(job, &nodes));
    holders
        .flat_map(|holder| given_gpus(holder).map(move |gpu| (holder, gpu)))
        .filter_map(|(holder, gpu)| Some((holder, gpu.0, *owners.get(&gpu)?)))
        .filter(|(holder, node, owner)| {
            holder.id != *owner && has_task_on(holder, &BTreeSet::from([*node]))
        })
        .map(|(.., owner)| owner)
        .collect()
}

/// Whether the job has a task on one of the nodes that has neither ended nor is suspended, which
/// frees its GPU. It may be a PS shard, which holds CPU and memory longer than a worker holds its
/// GPU.
fn has_task_on(job: &SnapshotJob, nodes: &BTreeSet<NodeId>) -> bool {
    let held = job.held_tasks();
    let mut holding = held.filter(|task| task.state != TaskState::Suspended);
    holding.any(|task| nodes.contains(&task.node))
}

/// GPUs of the job's tasks, released ones included.
fn given_gpus(job: &SnapshotJob) -> impl Iterator<Item = Gpu> {
    let tasks = job.tasks.iter().chain(&job.leaving);
    let tasks = tasks.filter(|task| task.state != TaskState::Suspended);
    tasks.flat_map(|task| task.gpus.iter().map(|&gpu| (task.node, gpu)))
}

fn gpus(seats: &[Seat]) -> impl Iterator<Item = Gpu> {
    let seats = seats.iter();
    seats.flat_map(|seat| seat.gpus.iter().map(|&gpu| (seat.node, gpu)))
}
