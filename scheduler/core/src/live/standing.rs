//! Where a job stands after its facts were settled, and its turn among those who wait.

use super::free::Holding;
use super::world::LiveJob;
use muster_model::id::JobId;
use muster_model::job::{AfterStop, JobState, RequeueCause};
use std::cmp::Reverse;

/// What the round may do with a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Holds its tasks and may be resized or displaced.
    Running,
    /// Holds its tasks; it is never resized before it is up.
    Starting,
    /// Stops, and comes back as soon as there is room for it.
    Returning,
    /// Stops for a job of higher priority or a lowered quota, and waits in its turn like a queued one.
    Displaced,
    /// Its workers stand still, or are about to; it is no affair of the policy's.
    Suspended,
    /// Waits, and holds nothing.
    Queued,
    /// Waits out its back-off, or is paused; its last tasks may still hold GPUs.
    Resting,
    /// Ends; its tasks may still hold GPUs.
    Ending,
}

/// The order in which waiting jobs are named and protected: priority; then who has begun, because it owns a checkpoint; then
/// submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn {
    priority: Reverse<i32>,
    is_new: bool,
    submitted_ms: i64,
    job: JobId,
}

impl Turn {
    pub(crate) fn of(live: &LiveJob<'_>) -> Self {
        Self {
            priority: Reverse(live.priority),
            is_new: live.revision == 0,
            submitted_ms: live.job.submitted_ms,
            job: live.job.id,
        }
    }
}

impl Standing {
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

    /// Whether it waits for GPUs, or will once its old tasks are gone.
    pub(crate) fn waits(self) -> bool {
        matches!(self, Self::Returning | Self::Displaced | Self::Queued)
    }
}

/// GPUs in all.
pub(crate) fn gpus_of(holdings: &[Holding]) -> u32 {
    holdings.iter().map(|held| held.gpus.count_ones()).sum()
}
