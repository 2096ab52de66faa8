//! Carries out a plan on a snapshot. Tests, replays and the simulator use it.
//!
//! The store carries out plans on rows. What an action does to a job's record and to the states of
//! its tasks is the same for both and is in [`muster_model::plan`]. Here the task lists of the
//! snapshot change.

use crate::snapshot::{ClusterSnapshot, Fault, SnapshotJob, SnapshotTask};
use muster_model::fault::NodeFault;
use muster_model::id::{JobId, NodeId, TaskId};
use muster_model::job::InvalidTransition;
use muster_model::plan::{Action, JobRecord, PlannedTask, RoundPlan};
use muster_model::task::TaskState;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// A decision that contradicts the snapshot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    #[error("find the job of a decision")]
    UnknownJob,
    #[error("move a job's state")]
    Transition(#[source] InvalidTransition),
}

/// Carries out the whole plan. The ids of new tasks are derived from the job, its revision and the
/// position of the task in the plan.
///
/// # Errors
/// [`ApplyError`] if a decision names an unknown job, or an event that the job's state rejects. The
/// snapshot is then partly changed.
pub fn apply(snapshot: &mut ClusterSnapshot, plan: &RoundPlan) -> Result<(), ApplyError> {
    let now_ms = snapshot.now_ms;
    let ids = snapshot.jobs.iter().map(|job| job.id);
    let places: BTreeMap<JobId, usize> = ids.zip(0..).collect();
    for decision in &plan.decisions {
        let place = places.get(&decision.job).ok_or(ApplyError::UnknownJob)?;
        if let Action::GiveUp { tasks, .. } = &decision.action {
            charge(snapshot, *place, tasks);
        }
        apply_one(&mut snapshot.jobs[*place], &decision.action, now_ms)?;
    }
    let told = plan.behind.iter().flat_map(|behind| &behind.jobs);
    let told: BTreeSet<JobId> = told.map(|one| one.job).collect();
    for left_out in &mut snapshot.left_out {
        left_out.untold.retain(|one| !told.contains(&one.job));
    }
    for node in &mut snapshot.nodes {
        node.excluded |= plan.excluded.iter().any(|one| one.node == node.id);
    }
    Ok(())
}

/// Records one fault for each node that did not start a task of this job in time.
fn charge(snapshot: &mut ClusterSnapshot, job: usize, late: &[TaskId]) {
    let (job, at_ms) = (&snapshot.jobs[job], snapshot.now_ms);
    let late = job.tasks.iter().filter(|task| late.contains(&task.id));
    let late: BTreeSet<NodeId> = late.map(|task| task.node).collect();
    for node in &mut snapshot.nodes {
        if late.contains(&node.id) {
            node.faults.push(Fault {
                job: Some(job.id),
                what: NodeFault::Hang { at_start: true },
                at_ms,
            });
        }
    }
}

/// Promotes guests to lane 0 of GPUs that their hosts have left. The store does this in the
/// transaction that releases the GPU.
pub fn promote_guests(snapshot: &mut ClusterSnapshot) {
    let held = snapshot.jobs.iter().flat_map(SnapshotJob::held_tasks);
    let hosts = held.filter(|task| task.state.holds_gpus() && task.lane == 0);
    let hosted: BTreeSet<(NodeId, u32)> = hosts
        .flat_map(|task| task.gpus.iter().map(|&gpu| (task.node, gpu)))
        .collect();
    for task in snapshot.jobs.iter_mut().flat_map(|job| &mut job.tasks) {
        let is_hosted = task
            .gpus
            .iter()
            .any(|&gpu| hosted.contains(&(task.node, gpu)));
        if task.lane > 0 && !is_hosted {
            task.lane = 0;
        }
    }
}

fn apply_one(job: &mut SnapshotJob, action: &Action, now_ms: i64) -> Result<(), ApplyError> {
    // Without a watch, verdicts, suspects and idleness have no place in the snapshot.
    let (mut unwatched_verdicts, mut unwatched_suspects, mut unwatched_idle) =
        (0, Vec::new(), None);
    let (verdicts, suspects, idle) = match &mut job.watch {
        Some(watch) => (&mut watch.verdicts, &mut watch.suspects, &mut watch.idle),
        None => (
            &mut unwatched_verdicts,
            &mut unwatched_suspects,
            &mut unwatched_idle,
        ),
    };
    let mut record = JobRecord {
        state: &mut job.state,
        revision: &mut job.revision,
        revision_floor: 0,
        failures: &mut job.failures,
        put_off: &mut job.put_off,
        waiting: &mut job.waiting,
        not_before: &mut job.not_before_ms,
        placed: &mut job.placed_ms,
        running: &mut job.running_ms,
        turned: &mut job.turned_ms,
        lent: &mut job.lent,
        verdicts,
        suspects,
        idle,
        lost_s: &mut job.lost_s,
    };
    record
        .apply(action, now_ms)
        .map_err(ApplyError::Transition)?;
    for task in job.tasks.iter_mut().chain(&mut job.leaving) {
        let event = action.task_event(task.id, task.role);
        if let Some(Ok(state)) = event.map(|event| task.state.clone().apply(event)) {
            task.state = state;
        }
    }
    match action {
        Action::Start { tasks, .. } => {
            (job.finished, job.failed) = (None, None);
            job.tasks = assigned(job, tasks);
        }
        Action::Resize { leave, join, .. } => resize(job, leave, join),
        Action::Continue { beside, .. } => {
            let lane = u32::from(beside.is_some());
            job.tasks.iter_mut().for_each(|task| task.lane = lane);
        }
        _ => {}
    }
    Ok(())
}

/// Replaces the tasks of `leave`, which have been requested to stop, by those of `join`.
fn resize(job: &mut SnapshotJob, leave: &[TaskId], join: &[PlannedTask]) {
    let (leaving, kept): (Vec<SnapshotTask>, Vec<SnapshotTask>) = std::mem::take(&mut job.tasks)
        .into_iter()
        .partition(|task| leave.contains(&task.id));
    job.tasks = kept;
    let held = leaving.into_iter().filter(|task| !task.state.is_released());
    job.leaving.extend(held);
    let joined = assigned(job, join);
    job.tasks.extend(joined);
    job.tasks.sort_by_key(|task| (task.role, task.id));
}

fn assigned(job: &SnapshotJob, tasks: &[PlannedTask]) -> Vec<SnapshotTask> {
    let tasks = (0_u128..).zip(tasks).map(|(place, task)| {
        let salt = (u128::from(job.revision) << 16 | place).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        SnapshotTask {
            id: TaskId(Uuid::from_u128(job.id.0.as_u128() ^ salt)),
            role: task.role,
            node: task.node,
            gpus: task.gpus.clone(),
            state: TaskState::Assigned,
            pace: None,
            idle: None,
            lane: 0,
        }
    });
    tasks.collect()
}
