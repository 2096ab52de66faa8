//! What the tasks that are gone mean for their job: that it goes on without them, starts anew, waits, or has failed.

use super::{Ending, Facts};
use crate::snapshot::{Job, Task};
use muster_model::assignment::exit_code;
use muster_model::job::{AfterStop, Charge, JobState, RequeueCause};
use muster_model::task::{Outcome, Role, TaskState};

/// A node may refuse a job so often before it runs without a charge: about six minutes, which pods of others may take to go.
const FREE_REFUSALS: u32 = 8;

impl Facts<'_> {
    /// Lost tasks of a job that can do without them: workers, one shard that has a copy, and shards that nodes have refused. Its exchange
    /// has gone on without them already; the plan follows.
    fn survivors(&self, job: &Job) -> Option<Ending> {
        let is_shard = |task: &Task| matches!(task.role, Role::PsShard { .. });
        let is_lost = |task: &&Task| match &task.state {
            // A shard that ended in order before the job did was told to by its node: its copy goes on, and there is one shard less.
            TaskState::Released { outcome } => {
                !outcome.is_clean() || (job.replicated && is_shard(task))
            }
            _ => !self.up.contains(&task.node),
        };
        let lost: Vec<&Task> = job.tasks.iter().filter(is_lost).collect();
        let first = lost.first()?;
        let shards = job.tasks.iter().filter(|task| is_shard(task)).count();
        let lost_shards = || lost.iter().filter(|task| is_shard(task));
        // A refused one never held anything, so that the others have all there is.
        let refused = lost_shards().filter(|task| is_refused(task)).count();
        let held_something = lost_shards().count() - refused;
        // Two may have kept the copies of each other.
        let has_copy = job.replicated && shards - refused >= 2 && held_something == 1;
        let some_stay = shards > lost_shards().count();
        let expendable = |task: &&Task| match task.role {
            Role::Worker { rank } => rank > 0,
            Role::PsShard { .. } => some_stay && (has_copy || is_refused(task)),
        };
        let workers = job.tasks.iter().filter(|task| !lost.contains(task));
        let workers = workers
            .filter(|task| matches!(task.role, Role::Worker { .. }) && !task.state.is_released());
        let left = u32::try_from(workers.count()).unwrap_or(u32::MAX);
        let enough = left >= job.workers.min.max(1) && job.may_have(left);
        let able = job.in_place && job.state == JobState::Running;
        if !able || !enough || !lost.iter().all(expendable) {
            return None;
        }
        let own = lost.iter().find_map(|task| match &task.state {
            TaskState::Released { outcome } if is_own_fault(outcome) => {
                Some(format!("{} {outcome}", task.role))
            }
            _ => None,
        });
        // Who fails again and again is stopped in the end as any other.
        if own.is_some() && job.failures >= job.retries {
            return None;
        }
        let charge = match own {
            Some(_) => Charge::Failure,
            // It runs as it is, so that however many refusals are no failure; but its next growth would find the same, and GPUs would be held
            // for nothing each time ([`is_put_off`](crate::live::calm::is_put_off)).
            None if lost.iter().any(|task| is_refused(task)) => Charge::Refusal,
            None => Charge::None,
        };
        let what = own.unwrap_or_else(|| match &first.state {
            TaskState::Released { outcome } => format!("{} {outcome}", first.role),
            _ => format!("the node of {} is lost", first.role),
        });
        Some(Ending::GoesOn {
            without: lost.iter().map(|task| task.id).collect(),
            why: format!("{what}; the others train on"),
            charge,
        })
    }

    /// What the tasks that are gone mean for the job.
    pub(super) fn loss(&self, job: &Job) -> Option<Ending> {
        if let Some(goes_on) = self.survivors(job) {
            return Some(goes_on);
        }
        let requeue = |why: String| {
            Some(Ending::Stop {
                then: AfterStop::Requeue {
                    cause: RequeueCause::NodeLost,
                },
                why,
            })
        };
        let node_fault = gone(job).find(|(_, outcome)| outcome.is_node_fault());
        // Behind a node that is lost for certain.
        let refused =
            node_fault.filter(|_| job.held_tasks().all(|task| self.up.contains(&task.node)));
        if let Some((task, outcome)) = refused.filter(|(_, outcome)| outcome.is_refusal()) {
            let why = format!("{} was {outcome}", task.role);
            return Some(match refused_starts(job) < FREE_REFUSALS {
                true => Ending::PutOff { why },
                false => Ending::Failure { why },
            });
        }
        if let Some((task, outcome)) = node_fault {
            return requeue(match outcome {
                Outcome::Stopped { .. } => format!("{} {outcome}", task.role),
                _ => format!("{} was lost with its node", task.role),
            });
        }
        if let Some(task) = job.held_tasks().find(|task| !self.up.contains(&task.node)) {
            return requeue(format!("the node of {} is lost", task.role));
        }
        if let Some((task, outcome)) = gone(job).find(|(_, outcome)| is_own_fault(outcome)) {
            return Some(Ending::Failure {
                why: format!("{} {outcome}", task.role),
            });
        }
        if let Some((task, _)) = gone(job).find(|(_, outcome)| !outcome.is_clean()) {
            return requeue(format!("{} lost a peer", task.role));
        }
        // Single workers and shards may be done before the chief; only when no worker is left will nobody report an end any more. All
        // went in order, so it was their nodes that told them to: as when every node is restarted.
        if job.command.is_some() {
            let stopped = gone(job).find(|(_, outcome)| matches!(outcome, Outcome::Stopped { .. }));
            return stopped
                .and_then(|(task, _)| requeue(format!("its node stopped {} in order", task.role)));
        }
        let no_worker_left = job
            .tasks
            .iter()
            .filter(|task| matches!(task.role, Role::Worker { .. }))
            .all(|task| task.state.is_released());
        if no_worker_left {
            return requeue("its nodes stopped its tasks in order".to_owned());
        }
        None
    }
}

/// Whether its node would not begin with it.
pub(crate) fn is_refused(task: &Task) -> bool {
    matches!(&task.state, TaskState::Released { outcome } if outcome.is_refusal())
}

/// How often in a row nodes have refused its start. What was refused while it runs was growth, and says nothing of that.
pub(crate) fn refused_starts(job: &Job) -> u32 {
    match job.state {
        JobState::Starting => job.put_off,
        _ => 0,
    }
}

pub(super) fn gone(job: &Job) -> impl Iterator<Item = (&Task, &Outcome)> {
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

/// What became of a job of one task while it shared its GPU: that may have been for want of memory, or the other's doing, so it is not
/// charged. It shares no more, hence what it does to itself is charged the next time.
pub(super) fn hurt_beside_another(job: &Job) -> Option<String> {
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

/// Whether the task failed by itself: not in order, not with its node, and not because a peer went away.
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
