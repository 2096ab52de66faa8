//! A job as the sizing stages see it: where it stands after its facts were settled, and what is known of its future.

use crate::estimate::Estimate;
use crate::policy::Policy;
use crate::settle::Settled;
use crate::snapshot::{Job, Snapshot};
use muster_model::id::{JobId, NodeId};
use muster_model::job::{AfterStop, JobState, RequeueCause};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// One job in a round.
#[derive(Debug)]
pub(crate) struct Contender<'a> {
    pub job: &'a Job,
    pub standing: Standing,
    pub estimate: Estimate,
}

/// What the round may do with a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Holds its tasks and may be resized or displaced.
    Running,
    /// Holds its tasks; it is never resized before it is up.
    Starting,
    /// On a drained node: it must go, whether there is room elsewhere or not.
    Evicted,
    /// Stops, and comes back: what it needs at least is claimed for it, as if it still ran.
    Returning,
    /// Stops for a job of higher priority, and waits in its turn like a queued one.
    Displaced,
    /// Waits, and holds nothing.
    Queued,
    /// Waits out its back-off, or is paused; claims nothing, but its last tasks may still hold GPUs.
    Resting,
    /// Ends; its tasks may still hold GPUs.
    Ending,
}

/// The order in which jobs are considered: claims first, so that GPUs given up for a resize do not go to somebody else; then
/// priority; then who has begun, because it owns a checkpoint; then submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn {
    waits: bool,
    priority: Reverse<i32>,
    is_new: bool,
    submitted_ms: i64,
    job: JobId,
}

impl<'a> Contender<'a> {
    /// All jobs of the round, in the snapshot's order.
    pub(crate) fn all(
        snapshot: &'a Snapshot,
        settled: &[Settled<'a>],
        policy: &Policy,
    ) -> Vec<Self> {
        let drained: BTreeSet<NodeId> = snapshot
            .nodes
            .iter()
            .filter(|node| node.drained)
            .map(|node| node.id)
            .collect();
        settled
            .iter()
            .map(|settled| Self {
                job: settled.job,
                standing: standing(settled, &drained, snapshot.now_ms),
                estimate: Estimate::of(settled.job, policy),
            })
            .collect()
    }

    /// Its turn among those who claim what they gave up.
    pub(crate) fn claim(&self) -> Turn {
        Turn {
            waits: false,
            ..self.turn()
        }
    }

    /// Its turn among those who wait.
    pub(crate) fn turn(&self) -> Turn {
        Turn {
            waits: true,
            priority: Reverse(self.job.priority),
            is_new: self.job.revision == 0,
            submitted_ms: self.job.submitted_ms,
            job: self.job.id,
        }
    }

    /// Whether its tasks keep what they hold.
    pub(crate) fn stays(&self) -> bool {
        matches!(self.standing, Standing::Running | Standing::Starting)
    }
}

fn standing(settled: &Settled<'_>, drained: &BTreeSet<NodeId>, now_ms: i64) -> Standing {
    let resting = settled.not_before_ms.is_some_and(|at| at > now_ms);
    let evicted = || {
        settled
            .job
            .held_tasks()
            .any(|task| drained.contains(&task.node))
    };
    match &settled.state {
        JobState::Starting | JobState::Running if evicted() => Standing::Evicted,
        JobState::Starting => Standing::Starting,
        JobState::Running => Standing::Running,
        JobState::Stopping {
            then: AfterStop::Requeue { .. },
        }
        | JobState::Queued
            if resting =>
        {
            Standing::Resting
        }
        JobState::Stopping {
            then: AfterStop::Requeue {
                cause: RequeueCause::Preempted,
            },
        } => Standing::Displaced,
        JobState::Stopping {
            then: AfterStop::Requeue { .. },
        } => Standing::Returning,
        JobState::Queued => Standing::Queued,
        JobState::Paused => Standing::Resting,
        JobState::Stopping { .. }
        | JobState::Succeeded
        | JobState::Failed { .. }
        | JobState::Cancelled => Standing::Ending,
    }
}
