//! Carries out a plan on a snapshot, as the store does on its rows. Tests, replays and the
//! simulator use it.

use crate::plan::{Action, JobDecision, PlannedTask, RoundPlan};
use crate::snapshot::{ClusterSnapshot, Fault, SnapshotJob, SnapshotTask};
use muster_model::fault::NodeFault;
use muster_model::id::{JobId, NodeId, TaskId};
use muster_model::job::{Charge, InvalidTransition, JobState};
use muster_model::task::{Outcome, TaskEvent, TaskState};
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
        apply_one(&mut snapshot.jobs[*place], decision, now_ms)?;
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
    let tasks = |jobs: &[SnapshotJob]| {
        let held = jobs.iter().flat_map(SnapshotJob::held_tasks);
        let held = held.filter(|task| task.state.holds_gpus() && task.lane == 0);
        let gpus = held.flat_map(|task| task.gpus.iter().map(|&gpu| (task.node, gpu)));
        gpus.collect::<BTreeSet<_>>()
    };
    let hosted = tasks(&snapshot.jobs);
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

fn apply_one(job: &mut SnapshotJob, decision: &JobDecision, now_ms: i64) -> Result<(), ApplyError> {
    // A run ends the series of placement rejections; only a refused start continues it.
    let has_run = !matches!(job.state, JobState::Starting | JobState::Stopping { .. });
    if let Some(event) = decision.action.event() {
        let before = job.state.clone();
        job.state = job
            .state
            .clone()
            .apply(event)
            .map_err(ApplyError::Transition)?;
        job.waiting = None;
        if before != job.state && job.state == JobState::Queued {
            job.turned_ms = Some(now_ms);
        }
        // Suspected ranks belong to the earlier task set.
        if let Some(watch) = &mut job.watch {
            watch.suspects.clear();
        }
    }
    match &decision.action {
        Action::Start { tasks, lent, .. } => {
            start(job, tasks, now_ms);
            job.lent = *lent;
        }
        Action::Resize {
            leave,
            join,
            charge,
            ..
        } => {
            count(job, *charge);
            resize(job, leave, join, now_ms);
        }
        Action::Stop {
            charge,
            not_before_ms,
            ..
        } => {
            if has_run {
                job.put_off = 0;
            }
            job.lent = false;
            count(job, *charge);
            job.not_before_ms = not_before_ms.or(job.not_before_ms);
            for task in job.tasks.iter_mut().chain(&mut job.leaving) {
                // A stop leaves a released task as it is.
                if let Ok(state) = task.state.clone().apply(TaskEvent::Stop) {
                    task.state = state;
                }
            }
        }
        Action::Suspend { .. } => {
            turn(job, &TaskEvent::Suspend, now_ms);
            job.lent = false;
        }
        Action::Continue { beside, lent, .. } => {
            turn(job, &TaskEvent::Continue, now_ms);
            job.lent = *lent;
            job.running_ms = Some(now_ms);
            let lane = u32::from(beside.is_some());
            job.tasks.iter_mut().for_each(|task| task.lane = lane);
        }
        Action::GiveUp { tasks, why } => {
            for task in job.tasks.iter_mut().filter(|task| tasks.contains(&task.id)) {
                let outcome = Outcome::refused(why.clone());
                task.state = TaskState::Released { outcome };
            }
        }
        Action::Wait { waiting } => job.waiting = Some(waiting.clone()),
        Action::Judge { .. } => {
            if let Some(watch) = &mut job.watch {
                watch.verdicts += 1;
            }
        }
        Action::Suspect { suspects } => {
            if let Some(watch) = &mut job.watch {
                watch.suspects.clone_from(suspects);
            }
        }
        Action::Up => (job.running_ms, job.put_off) = (Some(now_ms), 0),
        Action::Release | Action::Hold | Action::Resume | Action::Cancel => {}
    }
    Ok(())
}

fn count(job: &mut SnapshotJob, charge: Charge) {
    match charge {
        Charge::None => {}
        Charge::Refusal => job.put_off = job.put_off.saturating_add(1),
        Charge::Failure => job.failures += 1,
    }
}

/// Applies a suspension or resumption to the workers. PS shards hold no GPU and block while the
/// workers are suspended.
fn turn(job: &mut SnapshotJob, event: &TaskEvent, now_ms: i64) {
    job.turned_ms = Some(now_ms);
    for task in job.tasks.iter_mut().filter(|task| task.is_worker()) {
        if let Ok(state) = task.state.clone().apply(event.clone()) {
            task.state = state;
        }
    }
}

fn start(job: &mut SnapshotJob, tasks: &[PlannedTask], now_ms: i64) {
    job.revision += 1;
    job.placed_ms = Some(now_ms);
    (job.turned_ms, job.running_ms) = (None, None);
    job.finished = None;
    job.failed = None;
    job.tasks = assigned(job, tasks);
}

fn resize(job: &mut SnapshotJob, leave: &[TaskId], join: &[PlannedTask], now_ms: i64) {
    job.revision += 1;
    job.placed_ms = Some(now_ms);
    let (leaving, kept) = std::mem::take(&mut job.tasks)
        .into_iter()
        .partition(|task| leave.contains(&task.id));
    job.tasks = kept;
    let leaving: Vec<SnapshotTask> = leaving;
    for mut task in leaving {
        if let Ok(state) = task.state.clone().apply(TaskEvent::Stop) {
            task.state = state;
        }
        if !task.state.is_released() {
            job.leaving.push(task);
        }
    }
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
            lane: 0,
        }
    });
    tasks.collect()
}
