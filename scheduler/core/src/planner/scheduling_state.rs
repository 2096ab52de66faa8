//! Scheduling state of a job after `observations`, and the order of waiting jobs.

use super::free::Holding;
use super::round_state::PlannedJob;
use muster_model::id::JobId;
use muster_model::job::{AfterStop, JobState, RequeueCause};
use std::cmp::Reverse;

/// Scheduling state of a job: it determines what the round may do with the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SchedulingState {
    /// Holds its tasks; may be resized or displaced.
    Running,
    /// Holds its tasks; is not resized before it is up.
    Starting,
    /// Stops, and starts again as soon as there is room for it.
    Returning,
    /// Stops for a job of higher priority or a lowered quota, and waits in the order of the queue.
    Displaced,
    /// Its workers are suspended or about to be; the policy does not see it.
    Suspended,
    /// Waits and holds nothing.
    Queued,
    /// Is in back-off or paused; its last tasks may still hold GPUs.
    Resting,
    /// Ends; its tasks may still hold GPUs.
    Ending,
}

/// Order of waiting jobs in explanations and starvation protection. Higher priorities come first,
/// then jobs that have started before, because they own a checkpoint, then earlier submissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueOrder {
    priority: Reverse<i32>,
    is_new: bool,
    submitted_ms: i64,
    job: JobId,
}

impl QueueOrder {
    pub(crate) fn of(live: &PlannedJob<'_>) -> Self {
        Self {
            priority: Reverse(live.priority),
            is_new: live.revision == 0,
            submitted_ms: live.job.submitted_ms,
            job: live.job.id,
        }
    }
}

impl SchedulingState {
    pub(crate) fn of(state: &JobState, not_before_ms: Option<i64>, now_ms: i64) -> Self {
        let resting = not_before_ms.is_some_and(|at| at > now_ms);
        match state {
            JobState::Starting => Self::Starting,
            JobState::Running => Self::Running,
            JobState::Suspended => Self::Suspended,
            JobState::Stopping {
                then: AfterStop::Requeue { .. } | AfterStop::Move { .. },
            }
            | JobState::Queued
                if resting =>
            {
                Self::Resting
            }
            JobState::Stopping {
                then: AfterStop::Requeue { cause },
            } => match cause {
                RequeueCause::Preempted | RequeueCause::OverQuota => Self::Displaced,
                RequeueCause::Resize | RequeueCause::TaskFailed | RequeueCause::NodeLost => {
                    Self::Returning
                }
            },
            JobState::Stopping {
                then: AfterStop::Move { .. },
            } => Self::Returning,
            JobState::Queued => Self::Queued,
            JobState::Paused => Self::Resting,
            JobState::Stopping { .. }
            | JobState::Succeeded
            | JobState::Failed { .. }
            | JobState::Cancelled => Self::Ending,
        }
    }

    /// Whether its tasks keep what they hold.
    pub(crate) fn stays(self) -> bool {
        matches!(self, Self::Running | Self::Starting)
    }

    /// Whether it waits for GPUs, or will wait once its old tasks have ended.
    pub(crate) fn waits(self) -> bool {
        matches!(self, Self::Returning | Self::Displaced | Self::Queued)
    }
}

/// Total number of GPUs.
pub(crate) fn gpus_of(holdings: &[Holding]) -> u32 {
    holdings.iter().map(|held| held.gpus.count_ones()).sum()
}
