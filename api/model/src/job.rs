//! A job: a training that a user submitted, and its states.
//!
//! Users write intents ([`Intent`]). Only the scheduler changes the state, through
//! [`JobState::apply`].

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
    /// Revision of the job's task set: 0 before the first start, +1 at every start and every resize
    /// in place. It is the fence against stale tasks and stale plans.
    pub revision: u64,
    /// Restarts charged to the job's `retries`: task failures, but not resizes, pauses or lost
    /// nodes.
    pub failures: u32,
    /// Why the job does not run, from the newest round. `None` unless `Queued` or `Paused`.
    pub waiting: Option<Waiting>,
    /// Earliest time of the next start after a failure (exponential back-off).
    #[serde(with = "time::serde::rfc3339::option")]
    pub not_before: Option<OffsetDateTime>,
    #[serde(with = "time::serde::rfc3339")]
    pub submitted_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339::option")]
    pub started_at: Option<OffsetDateTime>,
    #[serde(with = "time::serde::rfc3339::option")]
    pub finished_at: Option<OffsetDateTime>,
}

/// State of the job that its user wants. It takes effect in the next scheduling round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Intent {
    Run,
    /// Pause with processes kept: the job holds no GPU until it is continued.
    Suspend,
    Pause,
    Cancel,
}

/// State of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum JobState {
    /// Waits for a round to place it; `waiting` of the job gives the reason.
    Queued,
    /// The tasks of the job are assigned to nodes; not all of them run yet.
    Starting,
    /// All tasks of the present revision run. After a resize in place: all that continued.
    Running,
    /// The workers are suspended at a step boundary, or have been requested to suspend. Each holds
    /// its GPUs until it reports its suspension. The processes stay and resume from where they
    /// stopped.
    Suspended,
    /// The tasks have been requested to stop; each holds its GPUs until its exit is reported.
    Stopping {
        then: AfterStop,
    },
    /// Holds no resources; continues from its newest checkpoint when resumed.
    Paused,
    Succeeded,
    Failed {
        reason: String,
    },
    Cancelled,
}

/// Name of a state without its data, by which lists filter.
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

/// Next state of a stopping job once its last task has exited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum AfterStop {
    /// The job returns to the queue and starts again from its checkpoint.
    Requeue {
        cause: RequeueCause,
    },
    /// The job starts again from its checkpoint on these GPUs, which are reserved until then.
    Move {
        to: Vec<Seat>,
        /// Unix ms at which the reservation ends; the job then returns to the queue. `None` if the
        /// destination does not depend on other jobs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until_unix_ms: Option<i64>,
    },
    Pause,
    Succeed,
    Fail {
        reason: String,
    },
    Cancel,
}

impl AfterStop {
    /// Whether the job stops so that other jobs or a new placement of its own get its GPUs.
    #[must_use]
    pub fn is_for_others(&self) -> bool {
        match self {
            Self::Move { .. } => true,
            Self::Requeue { cause } => match cause {
                RequeueCause::Resize | RequeueCause::Preempted | RequeueCause::OverQuota => true,
                RequeueCause::TaskFailed | RequeueCause::NodeLost => false,
            },
            Self::Pause | Self::Succeed | Self::Fail { .. } | Self::Cancel => false,
        }
    }
}

/// Charge of a decision against its job. The larger of two charges counts. Serialised as a bool
/// (`true` is a failure), which older releases read too; a refusal is serialised by its name.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(from = "WrittenCharge", into = "WrittenCharge")]
pub enum Charge {
    #[default]
    None,
    /// A node refused a task of the job. Repeated refusals lengthen the job's back-off.
    Refusal,
    /// One of the job's retries.
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

/// Destination of one task of a migrating job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Seat {
    pub role: Role,
    pub node: NodeId,
    /// Indices of the node's GPUs or CPU slots.
    pub gpus: Vec<u32>,
}

/// Why a job left its GPUs and returned to the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum RequeueCause {
    /// The scheduler changes its number of workers or shards, or its GPUs.
    Resize,
    /// Its GPUs go to a job that precedes it.
    Preempted,
    /// Its tenant's quota was lowered below what the tenant's jobs hold.
    OverQuota,
    /// A task failed; charged to `retries`.
    TaskFailed,
    /// A node was lost; not charged.
    NodeLost,
}

/// Events that change the state of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum JobEvent {
    /// A plan committed a new revision of its tasks.
    Start,
    /// Every task of the present revision reported that it is up.
    AllRunning,
    /// A plan committed a new revision in which some tasks join or leave and the others continue.
    Resize,
    /// A plan suspends its workers, so that other jobs use their GPUs.
    Suspend,
    /// A plan resumes its workers on their GPUs.
    Continue,
    /// A plan, or a report that ends the job, stops its tasks.
    Stop { then: AfterStop },
    /// The last task has exited and holds nothing.
    Released,
    /// A waiting job is paused.
    Hold,
    /// A paused job is resumed.
    Resume,
    /// A job without tasks is cancelled.
    Cancel,
    /// A trial that trained to its budget gets a larger one, which its document contains.
    Extend,
}

/// Event that the present state does not allow; the state is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a {phase} job cannot take the event {event}")]
pub struct InvalidTransition {
    pub phase: &'static str,
    pub event: &'static str,
}

impl JobState {
    /// Returns the state after `event`.
    ///
    /// # Errors
    /// [`InvalidTransition`] if this state does not allow the event.
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

    /// Whether the state is final. One exception: a study extends a trial that has succeeded.
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
    /// Whether the program of a running job is asked for a checkpoint before this stop, if its
    /// document allows that. It is not asked where it does not continue, and not after a failure or
    /// the loss of a node, because its ranks may wait for a lost one.
    #[must_use]
    pub fn asks_for_checkpoint(&self) -> bool {
        self.is_for_others() || *self == Self::Pause
    }

    /// Returns the stronger of two orders. An end (cancel, fail, succeed) is final, a pause
    /// outranks a requeue, and a requeue replaces a move whose destination is lost.
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
