//! Scheduling state of a job after `observations`.

use muster_model::job::{AfterStop, JobState, RequeueCause};

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
