//! A job as the sizing stages see it: where it stands after its facts were settled, and what is known of its future.

use crate::estimate::Estimate;
use crate::policy::Policy;
use crate::settle::Settled;
use crate::snapshot::{Job, Snapshot};
use muster_model::id::{JobId, NodeId};
use muster_model::job::{AfterStop, JobState};
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
    /// Stops, and comes back: its GPUs are claimed for itself.
    Returning,
    /// Waits, and holds nothing.
    Queued,
    /// Waits out its back-off, or is paused; claims nothing, but its last tasks may still hold GPUs.
    Resting,
    /// Ends; its tasks may still hold GPUs.
    Ending,
}

/// The order in which jobs are considered: priority, then who has begun (it owns a checkpoint, and GPUs that it gave up for a resize
/// must not go to somebody behind it), then submission.
pub(crate) type Turn = (Reverse<i32>, bool, i64, JobId);

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

    pub(crate) fn turn(&self) -> Turn {
        (
            Reverse(self.job.priority),
            self.job.revision == 0,
            self.job.submitted_ms,
            self.job.id,
        )
    }

    /// Whether its tasks keep what they hold.
    pub(crate) fn stays(&self) -> bool {
        matches!(self.standing, Standing::Running | Standing::Starting)
    }

    /// Whether it wants GPUs that it does not have.
    pub(crate) fn wants(&self) -> bool {
        matches!(
            self.standing,
            Standing::Evicted | Standing::Returning | Standing::Queued
        )
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
