//! A job: what a user submitted, and the states it passes through.
//!
//! Users state intents (`Intent`); only the scheduler moves a job from state to state, through [`JobState::apply`].

use crate::id::{JobId, NodeId, TenantId, UserId};
use crate::spec::JobSpec;
use crate::task::Role;
use crate::wait::Waiting;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// The scheduler's record of one submitted job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    pub id: JobId,
    pub tenant_id: TenantId,
    pub submitted_by: UserId,
    pub spec: JobSpec,
    pub intent: Intent,
    pub state: JobState,
    /// Revision of the job's task set: 0 before the first start, +1 at every start and every resize in place. Fences stale tasks and
    /// stale plans.
    pub revision: u64,
    /// Restarts charged to the job's `retries`: task failures, not resizes, pauses or lost nodes.
    pub failures: u32,
    /// Why the job does not run now, from the newest round; `None` unless `Queued` or `Paused`.
    pub waiting: Option<Waiting>,
    /// After a failure the job is not started before this instant (exponential back-off).
    #[serde(with = "time::serde::rfc3339::option")]
    pub not_before: Option<OffsetDateTime>,
    #[serde(with = "time::serde::rfc3339")]
    pub submitted_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339::option")]
    pub started_at: Option<OffsetDateTime>,
    #[serde(with = "time::serde::rfc3339::option")]
    pub finished_at: Option<OffsetDateTime>,
}

/// What the user wants of the job; written by the api, obeyed by the next round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Intent {
    Run,
    /// Stand still with the processes kept, holding no GPU, until it is continued.
    Suspend,
    Pause,
    Cancel,
}

/// Where a job stands. Data lives in the variant that needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum JobState {
    /// Waits for a round to place it; `Job::waiting` says why it does not run yet.
    Queued,
    /// Its tasks are committed to nodes; not all of them are up.
    Starting,
    /// All tasks of the present revision are up; after a resize in place, those that train on.
    Running,
    /// Its workers stand still at a step's end, or were told to; each holds its GPUs until it says so. Their processes stay, and go
    /// on from where they stand.
    Suspended,
    /// Its tasks were told to stop; GPUs stay held until each is reported gone.
    Stopping {
        then: AfterStop,
    },
    /// Holds nothing; continues from its newest checkpoint when resumed.
    Paused,
    Succeeded,
    Failed {
        reason: String,
    },
    Cancelled,
}

/// The name of a state without its data; what lists filter by and what SQL stores in its own column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum JobPhase {
    Queued,
    Starting,
    Running,
    Suspended,
    Stopping,
    Paused,
    Succeeded,
    Failed,
    Cancelled,
}

/// What becomes of a stopping job once its last task is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum AfterStop {
    /// Back to the queue, to start again from its checkpoint.
    Requeue {
        cause: RequeueCause,
    },
    /// To start again from its checkpoint on these GPUs, which are kept for it until then.
    Move {
        to: Vec<Seat>,
    },
    Pause,
    Succeed,
    Fail {
        reason: String,
    },
    Cancel,
}

/// What a decision counts against its job; of two the later one here. It is written as it was when there was no other question than whether a
/// failure is charged, and by its name where it is a refusal.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(from = "WrittenCharge", into = "WrittenCharge")]
pub enum Charge {
    #[default]
    None,
    /// A node refused a task of it: it waits for longer each time.
    Refusal,
    /// One of its retries.
    Failure,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum WrittenCharge {
    IsFailure(bool),
    Named(Named),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Named {
    Refusal,
}

impl From<WrittenCharge> for Charge {
    fn from(written: WrittenCharge) -> Self {
        match written {
            WrittenCharge::IsFailure(false) => Self::None,
            WrittenCharge::IsFailure(true) => Self::Failure,
            WrittenCharge::Named(Named::Refusal) => Self::Refusal,
        }
    }
}

impl From<Charge> for WrittenCharge {
    fn from(charge: Charge) -> Self {
        match charge {
            Charge::None => Self::IsFailure(false),
            Charge::Failure => Self::IsFailure(true),
            Charge::Refusal => Self::Named(Named::Refusal),
        }
    }
}

/// Where one task of a job that moves will be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Seat {
    pub role: Role,
    pub node: NodeId,
    /// Indices of the node's GPUs or CPU slots.
    pub gpus: Vec<u32>,
}

/// Why a job left its GPUs although it wants to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum RequeueCause {
    /// The scheduler gives it another number of workers or shards, or other GPUs.
    Resize,
    /// Its GPUs go to a job that comes before it.
    Preempted,
    /// Its tenant's quota was lowered below what its jobs hold.
    OverQuota,
    /// A task failed; charged to `retries`.
    TaskFailed,
    /// A node was lost; not charged.
    NodeLost,
}

/// What can happen to a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum JobEvent {
    /// A plan committed a new revision of its tasks.
    Start,
    /// Every task of the present revision reported that it is up.
    AllRunning,
    /// A plan committed a new revision in which some tasks join or leave and the others train on.
    Resize,
    /// A plan lets its workers stand still, so that others may use their GPUs.
    Suspend,
    /// A plan gives them their GPUs back; they go on.
    Continue,
    /// A plan, or a report that ends the job, stops its tasks.
    Stop { then: AfterStop },
    /// The last task is gone and holds nothing.
    Released,
    /// A waiting job is paused.
    Hold,
    /// A paused job is resumed.
    Resume,
    /// A job without tasks is cancelled.
    Cancel,
    /// A trial that has trained as far as it was told to is to train further; its document says how far by then.
    Extend,
}

/// An event that the present state does not allow; nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a {phase} job cannot take the event {event}")]
pub struct InvalidTransition {
    pub phase: &'static str,
    pub event: &'static str,
}

impl JobState {
    /// The state after `event`.
    ///
    /// # Errors
    /// [`InvalidTransition`] when this state does not allow it.
    pub fn apply(self, event: JobEvent) -> Result<Self, InvalidTransition> {
        use JobState::{
            Cancelled, Failed, Paused, Queued, Running, Starting, Stopping, Succeeded, Suspended,
        };
        let refused = InvalidTransition {
            phase: self.phase().as_str(),
            event: event.name(),
        };
        match (self, event) {
            (Queued, JobEvent::Start) => Ok(Starting),
            (Queued, JobEvent::Hold) => Ok(Paused),
            (Queued | Paused, JobEvent::Cancel) => Ok(Cancelled),
            (Paused, JobEvent::Resume) | (Succeeded, JobEvent::Extend) => Ok(Queued),
            (Starting, JobEvent::AllRunning)
            | (Running, JobEvent::Resize)
            | (Suspended, JobEvent::Continue) => Ok(Running),
            (Running, JobEvent::Suspend) => Ok(Suspended),
            (Starting | Running | Suspended, JobEvent::Stop { then }) => Ok(Stopping { then }),
            (Stopping { then: before }, JobEvent::Stop { then: after }) => Ok(Stopping {
                then: before.outranked_by(after),
            }),
            (Stopping { then }, JobEvent::Released) => Ok(then.state()),
            (
                Queued,
                JobEvent::AllRunning
                | JobEvent::Resize
                | JobEvent::Suspend
                | JobEvent::Continue
                | JobEvent::Stop { .. }
                | JobEvent::Released
                | JobEvent::Resume
                | JobEvent::Extend,
            )
            | (
                Starting,
                JobEvent::Start
                | JobEvent::Resize
                | JobEvent::Suspend
                | JobEvent::Continue
                | JobEvent::Released
                | JobEvent::Hold
                | JobEvent::Resume
                | JobEvent::Cancel
                | JobEvent::Extend,
            )
            | (
                Running,
                JobEvent::Start
                | JobEvent::AllRunning
                | JobEvent::Continue
                | JobEvent::Released
                | JobEvent::Hold
                | JobEvent::Resume
                | JobEvent::Cancel
                | JobEvent::Extend,
            )
            | (
                Suspended,
                JobEvent::Start
                | JobEvent::AllRunning
                | JobEvent::Resize
                | JobEvent::Suspend
                | JobEvent::Released
                | JobEvent::Hold
                | JobEvent::Resume
                | JobEvent::Cancel
                | JobEvent::Extend,
            )
            | (
                Stopping { .. },
                JobEvent::Start
                | JobEvent::AllRunning
                | JobEvent::Resize
                | JobEvent::Suspend
                | JobEvent::Continue
                | JobEvent::Hold
                | JobEvent::Resume
                | JobEvent::Cancel
                | JobEvent::Extend,
            )
            | (
                Paused,
                JobEvent::Start
                | JobEvent::AllRunning
                | JobEvent::Resize
                | JobEvent::Suspend
                | JobEvent::Continue
                | JobEvent::Stop { .. }
                | JobEvent::Released
                | JobEvent::Hold
                | JobEvent::Extend,
            )
            | (
                Succeeded | Failed { .. } | Cancelled,
                JobEvent::Start
                | JobEvent::AllRunning
                | JobEvent::Resize
                | JobEvent::Suspend
                | JobEvent::Continue
                | JobEvent::Stop { .. }
                | JobEvent::Released
                | JobEvent::Hold
                | JobEvent::Resume
                | JobEvent::Cancel,
            )
            | (Failed { .. } | Cancelled, JobEvent::Extend) => Err(refused),
        }
    }

    #[must_use]
    pub fn phase(&self) -> JobPhase {
        match self {
            Self::Queued => JobPhase::Queued,
            Self::Starting => JobPhase::Starting,
            Self::Running => JobPhase::Running,
            Self::Suspended => JobPhase::Suspended,
            Self::Stopping { .. } => JobPhase::Stopping,
            Self::Paused => JobPhase::Paused,
            Self::Succeeded => JobPhase::Succeeded,
            Self::Failed { .. } => JobPhase::Failed,
            Self::Cancelled => JobPhase::Cancelled,
        }
    }
}

impl JobPhase {
    pub const ALL: [Self; 9] = [
        Self::Queued,
        Self::Starting,
        Self::Running,
        Self::Suspended,
        Self::Stopping,
        Self::Paused,
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
    ];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Suspended => "suspended",
            Self::Stopping => "stopping",
            Self::Paused => "paused",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether nothing can happen to the job any more, except that a study lets a trial that has succeeded train further.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }

    /// Whether the job may have processes.
    #[must_use]
    pub fn has_tasks(self) -> bool {
        matches!(
            self,
            Self::Starting | Self::Running | Self::Suspended | Self::Stopping
        )
    }
}

impl AfterStop {
    /// A later order replaces a weaker one: an end (cancel, fail, succeed) is final, a pause outranks a requeue, and a place that is lost
    /// leaves of a move a requeue.
    fn outranked_by(self, later: Self) -> Self {
        if later.rank() > self.rank() {
            later
        } else {
            self
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Move { .. } => 0,
            Self::Requeue { .. } => 1,
            Self::Pause => 2,
            Self::Cancel => 3,
            Self::Fail { .. } => 4,
            Self::Succeed => 5,
        }
    }

    fn state(self) -> JobState {
        match self {
            Self::Requeue { .. } | Self::Move { .. } => JobState::Queued,
            Self::Pause => JobState::Paused,
            Self::Succeed => JobState::Succeeded,
            Self::Fail { reason } => JobState::Failed { reason },
            Self::Cancel => JobState::Cancelled,
        }
    }
}

impl JobEvent {
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::AllRunning => "all_running",
            Self::Resize => "resize",
            Self::Suspend => "suspend",
            Self::Continue => "continue",
            Self::Stop { .. } => "stop",
            Self::Released => "released",
            Self::Hold => "hold",
            Self::Resume => "resume",
            Self::Cancel => "cancel",
            Self::Extend => "extend",
        }
    }
}

impl Intent {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Suspend => "suspend",
            Self::Pause => "pause",
            Self::Cancel => "cancel",
        }
    }
}
