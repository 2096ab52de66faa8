//! Consequences of ended tasks: the job continues without them, restarts, backs off or fails.

use super::{ForcedTransition, ObservationContext};
use crate::snapshot::{SnapshotJob, SnapshotTask};
use muster_model::assignment::exit_code;
use muster_model::job::{Charge, JobState, RequeueCause};
use muster_model::task::{Outcome, Role, TaskState};

/// Consecutive rejected starts of a job without a charge. Their back-offs last about six minutes,
/// in which pods of other owners may terminate.
const FREE_REFUSALS: u32 = 8;

impl ObservationContext<'_> {
    /// Lost tasks without which the job can continue: workers, one shard with a replica, and shards
    /// that nodes refused. The tasks have continued without them already, and the plan follows.
    fn survivors(&self, job: &SnapshotJob) -> Option<ForcedTransition> {
        let tasks = job.tasks.iter();
        let lost: Vec<&SnapshotTask> = tasks.filter(|task| self.is_lost(job, task)).collect();
        let first = lost.first()?;
        let shards = job.tasks.iter().filter(|task| !task.is_worker()).count();
        let lost_shards = lost.iter().copied().filter(|task| !task.is_worker());
        let lost_shards: Vec<&SnapshotTask> = lost_shards.collect();
        // A refused shard never held parameters, so the other shards hold all of them.
        let refused = lost_shards.iter().filter(|task| is_refused(task)).count();
        let held_something = lost_shards.len() - refused;
        // Two lost shards may have held each other's replicas.
        let has_copy = job.replicated && shards - refused >= 2 && held_something == 1;
        let some_stay = shards > lost_shards.len();
        let expendable = lost.iter().all(|task| match task.role {
            Role::Worker { rank } => rank > 0,
            Role::PsShard { .. } => some_stay && (has_copy || is_refused(task)),
        });
        let workers = job.tasks.iter().filter(|task| !lost.contains(task));
        let workers = workers
            .filter(|task| matches!(task.role, Role::Worker { .. }) && !task.state.is_released());
        let left = u32::try_from(workers.count()).unwrap_or(u32::MAX);
        let enough = left >= job.workers.min.max(1) && job.may_have(left);
        // Workers of a program that have ended well will not meet the others again.
        let some_are_done = job.restarts_in_place()
            && job
                .tasks
                .iter()
                .any(|task| task.state.is_released() && !lost.contains(&task));
        let able = job.in_place && job.state == JobState::Running && !some_are_done;
        if !able || !enough || !expendable {
            return None;
        }
        let own = lost.iter().find_map(|task| match &task.state {
            TaskState::Released { outcome } if is_own_fault(outcome) => {
                Some(format!("{} {outcome}", task.role))
            }
            _ => None,
        });
        // Repeated failures of single tasks end at the limit of `retries`.
        if own.is_some() && job.failures >= job.retries {
            return None;
        }
        let charge = match own {
            Some(_) => Charge::Failure,
            // The job runs, so rejected growth is never a failure. But its next growth would be
            // rejected too, and would hold GPUs for nothing each time
            // (`hysteresis::in_backoff`).
            None if lost.iter().any(|task| is_refused(task)) => Charge::Refusal,
            None => Charge::None,
        };
        let what = own.unwrap_or_else(|| match &first.state {
            TaskState::Released { outcome } => format!("{} {outcome}", first.role),
            _ => format!("the node of {} is lost", first.role),
        });
        Some(ForcedTransition::GoesOn {
            without: lost.iter().map(|task| task.id).collect(),
            why: format!("{what}; the others continue"),
            charge,
        })
    }

    fn is_lost(&self, job: &SnapshotJob, task: &SnapshotTask) -> bool {
        match &task.state {
            // Only its node ends a shard with a clean exit before the job is done. Its replica
            // continues, and the job has one shard less.
            TaskState::Released { outcome } => {
                !outcome.is_clean() || (job.replicated && !task.is_worker())
            }
            _ => !self.up.contains(&task.node),
        }
    }

    /// Consequence of ended tasks for the job; `None` if there is none.
    pub(super) fn loss(&self, job: &SnapshotJob) -> Option<ForcedTransition> {
        if let Some(goes_on) = self.survivors(job) {
            return Some(goes_on);
        }
        let node_fault = gone(job).find(|(_, outcome)| outcome.is_node_fault());
        // A lost node outweighs a refusal.
        let refused =
            node_fault.filter(|_| job.held_tasks().all(|task| self.up.contains(&task.node)));
        if let Some((task, outcome)) = refused.filter(|(_, outcome)| outcome.is_refusal()) {
            let why = format!("{} was {outcome}", task.role);
            return Some(if refused_starts(job) < FREE_REFUSALS {
                ForcedTransition::PutOff { why }
            } else {
                ForcedTransition::Failure { why }
            });
        }
        if let Some((task, outcome)) = node_fault {
            return Some(requeue(match outcome {
                Outcome::Stopped { .. } => format!("{} {outcome}", task.role),
                _ => format!("{} was lost with its node", task.role),
            }));
        }
        if let Some(task) = job.held_tasks().find(|task| !self.up.contains(&task.node)) {
            return Some(requeue(format!("the node of {} is lost", task.role)));
        }
        if let Some((task, outcome)) = gone(job).find(|(_, outcome)| is_own_fault(outcome)) {
            return Some(ForcedTransition::Failure {
                why: format!("{} {outcome}", task.role),
            });
        }
        if let Some((task, _)) = gone(job).find(|(_, outcome)| !outcome.is_clean()) {
            return Some(requeue(format!("{} lost a peer", task.role)));
        }
        // Single workers and shards may end before the coordinator. Only if no worker is left, no
        // end will be reported. All exits were clean, so their nodes stopped the tasks, for example
        // because every node restarts.
        if job.command.is_some() {
            let stopped = gone(job).find(|(_, outcome)| matches!(outcome, Outcome::Stopped { .. }));
            return stopped
                .map(|(task, _)| requeue(format!("its node stopped {} in order", task.role)));
        }
        let no_worker_left = job
            .tasks
            .iter()
            .filter(|task| matches!(task.role, Role::Worker { .. }))
            .all(|task| task.state.is_released());
        if no_worker_left {
            let why = "its nodes stopped its tasks in order".to_owned();
            return Some(requeue(why));
        }
        None
    }
}

fn requeue(why: String) -> ForcedTransition {
    ForcedTransition::requeue(RequeueCause::NodeLost, why)
}

/// Whether the node refused to start the task.
pub(crate) fn is_refused(task: &SnapshotTask) -> bool {
    matches!(&task.state, TaskState::Released { outcome } if outcome.is_refusal())
}

/// Number of consecutive rejected starts. Rejections of a running job concern its growth and do not
/// count.
pub(crate) fn refused_starts(job: &SnapshotJob) -> u32 {
    match job.state {
        JobState::Starting => job.put_off,
        _ => 0,
    }
}

pub(super) fn gone(job: &SnapshotJob) -> impl Iterator<Item = (&SnapshotTask, &Outcome)> {
    job.tasks.iter().filter_map(|task| match &task.state {
        TaskState::Released { outcome } => Some((task, outcome)),
        TaskState::Assigned
        | TaskState::Running
        | TaskState::Suspending
        | TaskState::Suspended
        | TaskState::Stopping
        | TaskState::Ending => None,
    })
}

/// Failure of a job of one task that shared its GPU; `None` if there is none. Lack of memory or the
/// other job may have caused it, so it is not charged. The job is never packed again, so a further
/// failure is its own.
pub(super) fn hurt_beside_another(job: &SnapshotJob) -> Option<String> {
    let hurt = job.measured.as_ref()?.hurt?;
    if hurt.revision != job.revision {
        return None;
    }
    let what = match (
        &job.failed,
        gone(job).find(|(_, outcome)| is_own_fault(outcome)),
    ) {
        (Some(failed), _) => failed.message.clone(),
        (None, Some((task, outcome))) => format!("{} {outcome}", task.role),
        (None, None) => return None,
    };
    Some(format!(
        "{what}, while it shared its GPU: that is not charged, and it shares no more"
    ))
}

/// Whether the task failed by itself: not with a clean exit, with its node, or after the loss of a
/// peer.
pub(super) fn is_own_fault(outcome: &Outcome) -> bool {
    let lost_peer = matches!(
        outcome,
        Outcome::Exited {
            code: exit_code::PEER_LOST,
            ..
        }
    );
    !outcome.is_clean() && !outcome.is_node_fault() && !lost_peer
}
