//! First stage: applies facts to jobs. Outcomes of tasks and intents of owners become the decisions
//! that they force, before the policy runs.
//!
//! It never reads free GPUs. Of other jobs it reads only whether their tasks still hold the
//! destination of a moving job.

mod destination_wait;
mod missing_requirement;
mod start_timeout;
mod task_loss;

use self::task_loss::{gone, hurt_beside_another, is_own_fault};
pub(crate) use self::task_loss::{is_refused, refused_starts};
use super::planned_job::PlannedJob;
use super::scheduling_state::SchedulingState;
use crate::plan::Action;
use crate::policy::Policy;
use crate::snapshot::{ClusterSnapshot, SnapshotJob, SnapshotNode, SnapshotTask};
use muster_model::assignment::exit_code;
use muster_model::id::{JobId, NodeId, TaskId};
use muster_model::job::{AfterStop, Charge, Intent, JobState, RequeueCause};
use muster_model::spec::Ends;
use muster_model::task::{Outcome, Role, TaskState};
use std::collections::BTreeSet;

/// A job after its facts were applied.
#[derive(Debug, Clone)]
pub(crate) struct ObservedJob<'a> {
    pub job: &'a SnapshotJob,
    pub state: JobState,
    pub not_before_ms: Option<i64>,
    /// Decisions so far, in order.
    pub actions: Vec<Action>,
}

/// Applies the facts to every job, in the order of the snapshot.
pub(crate) fn apply_observations<'a>(
    snapshot: &'a ClusterSnapshot,
    policy: &Policy,
) -> Vec<ObservedJob<'a>> {
    let up: BTreeSet<NodeId> = snapshot
        .nodes
        .iter()
        .filter(|node| node.up)
        .map(|node| node.id)
        .collect();
    let drained = snapshot.nodes.iter().filter(|node| node.drained);
    let drained = drained.map(|node| node.id).collect();
    // A job that is suspended on a node without new tasks cannot resume there.
    let excluded = snapshot
        .nodes
        .iter()
        .filter(|node| node.excluded || node.cordoned);
    let excluded = excluded.map(|node| node.id).collect();
    let processes = snapshot
        .nodes
        .iter()
        .filter(|node| node.pods == Some(false));
    let processes = processes.map(|node| node.id).collect();
    let facts = ObservationContext {
        now_ms: snapshot.now_ms,
        nodes: &snapshot.nodes,
        up,
        drained,
        excluded,
        processes,
        waiting: destination_wait::waiting(snapshot),
        policy,
    };
    snapshot.jobs.iter().map(|job| facts.settle(job)).collect()
}

/// State and `not_before_ms` of a stopping job after the end of its last task, for trials.
pub(crate) fn once_gone(
    live: &PlannedJob<'_>,
    policy: &Policy,
    now_ms: i64,
) -> (JobState, Option<i64>) {
    let mut job = live.job.clone();
    let charged = live
        .actions
        .iter()
        .filter(|action| is_charge(action))
        .count();
    job.failures += u32::try_from(charged).unwrap_or(u32::MAX);
    job.state = live.state.clone();
    job.not_before_ms = live.not_before_ms;
    job.leaving.clear();
    if live.revision != job.revision {
        job.tasks.clear();
        (job.finished, job.failed) = (None, None);
    }
    for task in job
        .tasks
        .iter_mut()
        .filter(|task| !task.state.is_released())
    {
        let outcome = Outcome::stopped();
        task.state = TaskState::Released { outcome };
    }
    let up = BTreeSet::new();
    let (drained, excluded) = (BTreeSet::new(), BTreeSet::new());
    let facts = ObservationContext {
        now_ms,
        nodes: &[],
        up,
        drained,
        excluded,
        processes: BTreeSet::new(),
        waiting: BTreeSet::new(),
        policy,
    };
    let settled = facts.settle(&job);
    (settled.state, settled.not_before_ms)
}

impl ObservedJob<'_> {
    pub(crate) fn scheduling_state(&self, now_ms: i64) -> SchedulingState {
        SchedulingState::of(&self.state, self.not_before_ms, now_ms)
    }

    /// Records a decision and applies its transition.
    ///
    /// # Panics
    /// If the state does not allow the transition. The planner is then wrong, and nothing of its
    /// plan may be carried out.
    pub(crate) fn take(&mut self, action: Action) {
        if let Some(event) = action.event() {
            self.state = self
                .state
                .clone()
                .apply(event)
                .unwrap_or_else(|refused| panic!("job {}: {refused}", self.job.id));
        }
        self.actions.push(action);
    }
}

struct ObservationContext<'p> {
    now_ms: i64,
    nodes: &'p [SnapshotNode],
    up: BTreeSet<NodeId>,
    drained: BTreeSet<NodeId>,
    /// Nodes on which suspended jobs cannot resume.
    excluded: BTreeSet<NodeId>,
    /// Nodes whose tasks are known to be processes.
    processes: BTreeSet<NodeId>,
    /// Moving jobs that have stopped and whose destination other jobs still hold.
    waiting: BTreeSet<JobId>,
    policy: &'p Policy,
}

/// Event of the present revision that forces a decision.
enum ForcedTransition {
    /// The job stops for this reason and then enters this state.
    Stop { then: AfterStop, why: String },
    /// A failure that is charged to the job's retries.
    Failure { why: String },
    /// A placement rejection. It is not the job's fault, but a start on the same node would be
    /// rejected again. So it is not charged, and the back-off doubles each time.
    PutOff { why: String },
    /// These tasks are lost, and the others continue.
    GoesOn {
        without: Vec<TaskId>,
        why: String,
        charge: Charge,
    },
}

impl ForcedTransition {
    /// The job stops and returns to the queue, without a charge.
    fn requeue(cause: RequeueCause, why: String) -> Self {
        let then = AfterStop::Requeue { cause };
        Self::Stop { then, why }
    }

    /// The job stops and is not retried.
    fn fail_for_good(why: String) -> Self {
        let reason = why.clone();
        let then = AfterStop::Fail { reason };
        Self::Stop { then, why }
    }
}

impl ObservationContext<'_> {
    fn settle<'a>(&self, job: &'a SnapshotJob) -> ObservedJob<'a> {
        let mut settled = ObservedJob {
            job,
            state: job.state.clone(),
            not_before_ms: job.not_before_ms,
            actions: Vec::new(),
        };
        match &job.state {
            JobState::Starting | JobState::Running | JobState::Suspended => {
                self.settle_live(job, &mut settled)
            }
            JobState::Stopping { then } => self.settle_stopping(job, then, &mut settled),
            JobState::Queued
            | JobState::Paused
            | JobState::Succeeded
            | JobState::Failed { .. }
            | JobState::Cancelled => {}
        }
        obey_intent_at_rest(job.intent, &mut settled);
        settled
    }

    fn settle_live(&self, job: &SnapshotJob, settled: &mut ObservedJob<'_>) {
        if let Some(late) = self.late(job) {
            settled.take(late);
            return;
        }
        match self.ending(job) {
            Some(ForcedTransition::Stop { then, why }) => settled.take(stop(then, why)),
            Some(ForcedTransition::Failure { why }) => self.fail(job, why, settled),
            Some(ForcedTransition::PutOff { why }) => self.put_off(job, why, settled),
            Some(ForcedTransition::GoesOn {
                without,
                why,
                charge,
            }) => {
                settled.take(Action::Resize {
                    leave: without,
                    join: Vec::new(),
                    why,
                    charge,
                });
                return;
            }
            None => {
                // A finished task of a command was up before.
                let all_up = job
                    .tasks
                    .iter()
                    .all(|task| task.state == TaskState::Running || is_done(job, task));
                if job.state == JobState::Starting && all_up && !job.tasks.is_empty() {
                    settled.take(Action::Up);
                }
                let runs = settled.state == JobState::Running;
                // A job that must leave a drained node is suspended at its next place.
                let may_stay = !self.is_on_drained(job);
                if job.intent == Intent::Suspend && runs && may_stay && is_whole(job) {
                    let why = format!("suspended by {}", job.asker());
                    settled.take(Action::Suspend { why });
                }
                return;
            }
        }
        self.release(job, settled);
    }

    /// The first event that applies to the job. The order is: done, failed for good, stopped by its
    /// owner or its time limit, failed, tasks lost, suspension late or without return.
    fn ending(&self, job: &SnapshotJob) -> Option<ForcedTransition> {
        if let Some(why) = done(job) {
            let then = AfterStop::Succeed;
            return Some(ForcedTransition::Stop { then, why });
        }
        let hurt = hurt_beside_another(job);
        let failed = job.failed.as_ref();
        let for_good = failed.filter(|failed| !failed.retryable && hurt.is_none());
        if let Some(failed) = for_good {
            return Some(ForcedTransition::fail_for_good(failed.message.clone()));
        }
        match job.intent {
            Intent::Cancel => {
                let (then, why) = (AfterStop::Cancel, cancelled(job));
                return Some(ForcedTransition::Stop { then, why });
            }
            Intent::Pause => {
                let (then, why) = (AfterStop::Pause, paused(job));
                return Some(ForcedTransition::Stop { then, why });
            }
            Intent::Run | Intent::Suspend => {}
        }
        if let Some(reason) = over_time(job) {
            return Some(ForcedTransition::fail_for_good(reason));
        }
        if let Some(why) = hurt {
            return Some(ForcedTransition::requeue(RequeueCause::TaskFailed, why));
        }
        if let Some(reason) = missing_requirement::nowhere(job, self.nodes) {
            return Some(ForcedTransition::fail_for_good(reason));
        }
        if let Some(failed) = &job.failed {
            return Some(ForcedTransition::Failure {
                why: failed.message.clone(),
            });
        }
        if let Some(loss) = self.loss(job) {
            return Some(loss);
        }
        if let Some(late) = self.never_stood_still(job) {
            return Some(late);
        }
        // On such a node the job could never get its GPUs back.
        let is_suspended = job.state == JobState::Suspended;
        let mut held = job.held_tasks();
        let is_excluded = held.any(|task| self.excluded.contains(&task.node));
        let why = if is_suspended && self.is_on_drained(job) {
            "its node is drained"
        } else if is_suspended && is_excluded && job.intent == Intent::Run {
            "its node takes no tasks any more"
        } else {
            return None;
        };
        Some(ForcedTransition::requeue(
            RequeueCause::Resize,
            why.to_owned(),
        ))
    }

    /// A worker that has not reported its suspension in time. It still holds its GPUs, so the jobs
    /// that wait for them would wait for ever.
    fn never_stood_still(&self, job: &SnapshotJob) -> Option<ForcedTransition> {
        let told_ms = job.turned_ms.filter(|_| job.state == JobState::Suspended)?;
        let limit_ms = i64::try_from(self.policy.suspend_limit_ms).unwrap_or(i64::MAX);
        let waited_ms = self.now_ms.saturating_sub(told_ms);
        let mut tasks = job.tasks.iter();
        let late = tasks.find(|task| task.state == TaskState::Suspending);
        let task = late.filter(|_| waited_ms >= limit_ms)?;
        let why = format!(
            "{} was asked to suspend {} s ago and has not",
            task.role,
            waited_ms / 1_000
        );
        Some(ForcedTransition::requeue(RequeueCause::Resize, why))
    }

    fn is_on_drained(&self, job: &SnapshotJob) -> bool {
        job.held_tasks()
            .any(|task| self.drained.contains(&task.node))
    }

    fn settle_stopping(&self, job: &SnapshotJob, then: &AfterStop, settled: &mut ObservedJob<'_>) {
        if let Some((stronger, why)) = stronger_end(job, then) {
            settled.take(stop(stronger, why));
        }
        self.release(job, settled);
    }

    /// Releases a stopping job whose last task has ended.
    fn release(&self, job: &SnapshotJob, settled: &mut ObservedJob<'_>) {
        if job.held_tasks().next().is_some() {
            return;
        }
        let moves = matches!(
            settled.state,
            JobState::Stopping {
                then: AfterStop::Move { .. }
            }
        );
        if moves && self.waiting.contains(&job.id) {
            return;
        }
        // A job whose tasks only reported the loss of a peer stopped without a charge, because the
        // loss of a node is detected much later. Now every outcome is known: if no node is at
        // fault, the failure is charged to the job.
        let innocent = JobState::Stopping {
            then: AfterStop::Requeue {
                cause: RequeueCause::NodeLost,
            },
        };
        let charged = settled.actions.iter().any(is_charge);
        let node_to_blame = gone(job).any(|(_, outcome)| outcome.is_node_fault());
        let in_order = gone(job).all(|(_, outcome)| outcome.is_clean());
        if settled.state == innocent && !charged && !node_to_blame && !in_order {
            let why = gone(job)
                .find(|(_, outcome)| is_own_fault(outcome))
                .map_or_else(
                    || "its tasks lost each other, and no node was lost".to_owned(),
                    |(task, outcome)| format!("{} {outcome}", task.role),
                );
            self.fail(job, why, settled);
        }
        settled.take(Action::Release);
    }

    /// Requeues the job after a back-off, without a charge.
    fn put_off(&self, job: &SnapshotJob, why: String, settled: &mut ObservedJob<'_>) {
        let times = refused_starts(job).saturating_add(1);
        let until_ms = self.policy.backoff_until_ms(self.now_ms, times);
        settled.not_before_ms = Some(until_ms);
        let cause = RequeueCause::NodeLost;
        settled.take(Action::Stop {
            then: AfterStop::Requeue { cause },
            why,
            charge: Charge::Refusal,
            not_before_ms: Some(until_ms),
        });
    }

    /// Charges a failure. If the node lacked something, the job may start on another node at once.
    fn fail(&self, job: &SnapshotJob, why: String, settled: &mut ObservedJob<'_>) {
        let mut failed = self
            .policy
            .after_failure(self.now_ms, job.failures, job.retries, why);
        if missing_requirement::is_lack(job)
            && let Action::Stop { not_before_ms, .. } = &mut failed
        {
            *not_before_ms = None;
        }
        if let Action::Stop {
            not_before_ms: Some(until_ms),
            ..
        } = failed
        {
            settled.not_before_ms = Some(until_ms);
        }
        settled.take(failed);
    }
}

/// Whether the whole gang is up and can be suspended, and no task joins or leaves. A job without
/// GPUs would free none and keep its memory, so it stops instead.
pub(crate) fn is_whole(job: &SnapshotJob) -> bool {
    job.suspends && !job.is_cpu_only() && is_up(job)
}

/// Whether the whole gang is up, and no task joins or leaves. Finished tasks of a command count as
/// up.
pub(crate) fn is_up(job: &SnapshotJob) -> bool {
    job.leaving.is_empty()
        && job.tasks.iter().any(SnapshotTask::is_up)
        && job
            .tasks
            .iter()
            .all(|task| task.is_up() || is_done(job, task))
}

/// Whether the task belongs to a command and has finished.
fn is_done(job: &SnapshotJob, task: &SnapshotTask) -> bool {
    job.command.is_some() && has_ended_well(task)
}

fn is_charge(action: &Action) -> bool {
    matches!(
        action,
        Action::Stop {
            charge: Charge::Failure,
            ..
        }
    )
}

/// Reason why the job is done; `None` if it is not. Outcomes of its other tasks do not matter,
/// because they may have failed after the finished ones were gone.
fn done(job: &SnapshotJob) -> Option<String> {
    if let Some(finished) = &job.finished {
        return Some(finished.reason.clone());
    }
    let ends = job.command?;
    let workers = job.tasks.iter();
    let mut workers = workers
        .filter(|task| counts_for_end(ends, task.role))
        .peekable();
    let who = match ends {
        Ends::AllWorkers => "all of its workers",
        Ends::FirstWorker => "its first worker",
    };
    (workers.peek().is_some() && workers.all(has_ended_well))
        .then(|| format!("{who} ended with code 0"))
}

/// Whether a task must finish before the job is done.
fn counts_for_end(ends: Ends, role: Role) -> bool {
    match (ends, role) {
        (Ends::AllWorkers, Role::Worker { .. }) | (Ends::FirstWorker, Role::Worker { rank: 0 }) => {
            true
        }
        (Ends::AllWorkers | Ends::FirstWorker, Role::Worker { .. } | Role::PsShard { .. }) => false,
    }
}

/// Workers of a command that have finished before the others.
pub(crate) fn done_workers(job: &SnapshotJob) -> u32 {
    let workers = job.tasks.iter().filter(|task| task.is_worker());
    let done = workers.filter(|task| is_done(job, task));
    u32::try_from(done.count()).unwrap_or(u32::MAX)
}

fn has_ended_well(task: &SnapshotTask) -> bool {
    let outcome = Outcome::exited(exit_code::DONE);
    task.state == TaskState::Released { outcome }
}

/// End that replaces the planned end of a stopping job, with its reason.
fn stronger_end(job: &SnapshotJob, then: &AfterStop) -> Option<(AfterStop, String)> {
    let ends = matches!(then, AfterStop::Succeed | AfterStop::Fail { .. });
    match (done(job), &job.failed, job.intent) {
        (Some(why), _, _) if *then != AfterStop::Succeed => Some((AfterStop::Succeed, why)),
        (None, Some(failed), _)
            if !failed.retryable && !ends && hurt_beside_another(job).is_none() =>
        {
            Some((
                AfterStop::Fail {
                    reason: failed.message.clone(),
                },
                failed.message.clone(),
            ))
        }
        (None, _, Intent::Cancel) if !ends && *then != AfterStop::Cancel => {
            Some((AfterStop::Cancel, cancelled(job)))
        }
        (None, _, Intent::Pause)
            if matches!(then, AfterStop::Requeue { .. } | AfterStop::Move { .. }) =>
        {
            Some((AfterStop::Pause, paused(job)))
        }
        _ => None,
    }
}

fn obey_intent_at_rest(intent: Intent, settled: &mut ObservedJob<'_>) {
    match (&settled.state, intent) {
        (JobState::Queued | JobState::Paused, Intent::Cancel) => settled.take(Action::Cancel),
        // A queued job has no processes to suspend.
        (JobState::Queued, Intent::Pause | Intent::Suspend) => settled.take(Action::Hold),
        (JobState::Paused, Intent::Run) => settled.take(Action::Resume),
        _ => {}
    }
}

/// Reason why a program has reached its time limit. Only time in which all tasks are up counts, not
/// time in the queue or in suspension. The program was not done, so the job fails.
fn over_time(job: &SnapshotJob) -> Option<String> {
    let limit_s = job.limit_s.filter(|limit_s| job.trained_s >= *limit_s)?;
    Some(format!(
        "it has run for {:.1} minutes, and stop.wall_minutes is {}",
        job.trained_s / 60.0,
        limit_s / 60.0
    ))
}

fn cancelled(job: &SnapshotJob) -> String {
    format!("cancelled by {}", job.asker())
}

fn paused(job: &SnapshotJob) -> String {
    format!("paused by {}", job.asker())
}

fn stop(then: AfterStop, why: String) -> Action {
    Action::Stop {
        then,
        why,
        charge: Charge::None,
        not_before_ms: None,
    }
}
