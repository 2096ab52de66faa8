//! A task: one process of a job at one revision, on one node. It holds its GPUs until its exit is
//! reported.

use crate::id::{JobId, NodeId, TaskId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// One process of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    pub id: TaskId,
    pub job_id: JobId,
    /// Revision of the job to which this task belongs: its fence.
    pub revision: u64,
    pub role: Role,
    pub node_id: NodeId,
    /// Indices of the node's GPUs or CPU slots that it holds; empty for a PS shard without GPUs.
    pub gpus: Vec<u32>,
    pub state: TaskState,
    /// Address at which its data plane listens, once it is known (PS shards).
    pub address: Option<String>,
}

/// Role of a task in its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Role {
    /// Computes gradients. Rank 0 is the coordinator, which reports progress and writes
    /// checkpoints.
    Worker { rank: u32 },
    /// Holds a part of the parameters and of the optimizer state.
    PsShard { index: u32 },
}

/// State of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum TaskState {
    /// Assigned to a node, which has not reported it as running.
    Assigned,
    /// Its process runs.
    Running,
    /// Requested to suspend at the end of its step; holds its GPUs until it reports its suspension.
    Suspending,
    /// Its process is suspended and holds no GPU.
    Suspended,
    /// Requested to stop; still holds its GPUs.
    Stopping,
    /// Requested to stop while it was suspended: holds no GPU.
    Ending,
    /// Its process has exited and its GPUs are free.
    Released { outcome: Outcome },
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Outcome {
    Exited {
        code: i32,
        /// Last line of the output of a failed process, cleaned and cut; absent if it wrote
        /// nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        said: Option<String>,
    },
    Signalled {
        signal: i32,
        /// Last line of the output, as in `exited`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        said: Option<String>,
    },
    /// The process could not be started.
    LaunchFailed { message: String },
    /// The node had no session for longer than its lease and stopped the task itself.
    LeaseExpired,
    /// The node did not return within its lease, so it has stopped its tasks itself. Or the task
    /// died together with its shim, as in a power failure.
    NodeLost,
    /// Withdrawn before the node started it.
    NeverStarted,
    /// The process of a command was requested to stop and exited. `killed` if it exceeded its grace
    /// period.
    Stopped {
        killed: bool,
        /// Set if no stop was requested: the driver had moved the program off its GPUs and did not
        /// restore it, for this reason.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        driver: Option<String>,
    },
    /// Killed because it exceeded its memory limit.
    OutOfMemory,
    /// Kubernetes evicted its pod, or another client deleted the pod. `reason` is Kubernetes' own.
    Evicted { reason: String, message: String },
}

/// Events that change the state of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum TaskEvent {
    /// The node reports its process as running.
    Up,
    /// Its job is suspended.
    Suspend,
    /// The task reports its suspension.
    StoodStill,
    /// Its job resumes; the task holds its GPUs again.
    Continue,
    /// Its job stops.
    Stop,
    /// The node reports its process as exited, or the node is lost.
    Gone { outcome: Outcome },
}

/// Event that the present state does not allow; the state is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a {phase} task cannot take the event {event}")]
pub struct InvalidTransition {
    pub phase: &'static str,
    pub event: &'static str,
}

impl TaskState {
    /// Returns the state after `event`. A node repeats its reports after a reconnect, so a repeated
    /// `Up`, `Stop` or `Gone` leaves the state unchanged.
    ///
    /// # Errors
    /// [`InvalidTransition`] if this state does not allow the event.
    pub fn apply(self, event: TaskEvent) -> Result<Self, InvalidTransition> {
        let refused = InvalidTransition {
            phase: self.phase(),
            event: event.name(),
        };
        match (self, event) {
            (Self::Assigned | Self::Running, TaskEvent::Up)
            | (Self::Suspended | Self::Running, TaskEvent::Continue) => Ok(Self::Running),
            (Self::Running | Self::Suspending, TaskEvent::Suspend)
            | (Self::Suspending, TaskEvent::Up) => Ok(Self::Suspending),
            (Self::Suspending | Self::Suspended, TaskEvent::StoodStill)
            | (Self::Suspended, TaskEvent::Up | TaskEvent::Suspend) => Ok(Self::Suspended),
            (
                Self::Stopping,
                TaskEvent::Up | TaskEvent::Suspend | TaskEvent::StoodStill | TaskEvent::Stop,
            )
            | (Self::Assigned | Self::Running | Self::Suspending, TaskEvent::Stop) => {
                Ok(Self::Stopping)
            }
            (
                Self::Ending,
                TaskEvent::Up | TaskEvent::Suspend | TaskEvent::StoodStill | TaskEvent::Stop,
            )
            | (Self::Suspended, TaskEvent::Stop) => Ok(Self::Ending),
            (
                Self::Assigned
                | Self::Running
                | Self::Suspending
                | Self::Suspended
                | Self::Stopping
                | Self::Ending,
                TaskEvent::Gone { outcome },
            ) => Ok(Self::Released { outcome }),
            (Self::Released { outcome }, TaskEvent::Stop | TaskEvent::Gone { .. }) => {
                Ok(Self::Released { outcome })
            }
            (Self::Assigned, TaskEvent::Suspend | TaskEvent::StoodStill | TaskEvent::Continue)
            | (Self::Running, TaskEvent::StoodStill)
            | (Self::Suspending | Self::Stopping | Self::Ending, TaskEvent::Continue)
            | (
                Self::Released { .. },
                TaskEvent::Up | TaskEvent::Suspend | TaskEvent::StoodStill | TaskEvent::Continue,
            ) => Err(refused),
        }
    }

    #[must_use]
    pub fn phase(&self) -> &'static str {
        match self {
            Self::Assigned => "assigned",
            Self::Running => "running",
            Self::Suspending => "suspending",
            Self::Suspended => "suspended",
            Self::Stopping => "stopping",
            Self::Ending => "ending",
            Self::Released { .. } => "released",
        }
    }

    /// Whether the task holds its GPUs in this state.
    #[must_use]
    pub fn holds_gpus(&self) -> bool {
        match self {
            Self::Assigned | Self::Running | Self::Suspending | Self::Stopping => true,
            Self::Suspended | Self::Ending | Self::Released { .. } => false,
        }
    }

    #[must_use]
    pub fn is_released(&self) -> bool {
        matches!(self, Self::Released { .. })
    }
}

impl TaskEvent {
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Suspend => "suspend",
            Self::StoodStill => "stood_still",
            Self::Continue => "continue",
            Self::Stop => "stop",
            Self::Gone { .. } => "gone",
        }
    }
}

/// Reasons of [`Outcome::Evicted`] that Muster gives, besides those of Kubernetes.
const REFUSED: &str = "Refused";
const OVER_LIMIT: &str = "OverLimit";

impl Outcome {
    /// Exit of a process whose output is unknown.
    #[must_use]
    pub const fn exited(code: i32) -> Self {
        Self::Exited { code, said: None }
    }

    /// Death by a signal of a process whose output is unknown.
    #[must_use]
    pub const fn signalled(signal: i32) -> Self {
        Self::Signalled { signal, said: None }
    }

    /// Adds the last line of the task's output, if the task failed by itself.
    #[must_use]
    pub fn saying(mut self, last_line: Option<String>) -> Self {
        match &mut self {
            Self::Exited { code: 0, .. } => {}
            Self::Exited { said, .. } | Self::Signalled { said, .. } => *said = last_line,
            Self::LaunchFailed { .. }
            | Self::LeaseExpired
            | Self::NodeLost
            | Self::NeverStarted
            | Self::Stopped { .. }
            | Self::OutOfMemory
            | Self::Evicted { .. } => {}
        }
        self
    }

    /// Whether the process ended without an error: by itself, or because a stop was requested.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        matches!(
            self,
            Self::Exited { code: 0, .. } | Self::NeverStarted | Self::Stopped { driver: None, .. }
        )
    }

    /// Outcome of a command that stopped within its grace period.
    #[must_use]
    pub const fn stopped() -> Self {
        Self::Stopped {
            killed: false,
            driver: None,
        }
    }

    /// Outcome of a command that was killed after its grace period.
    #[must_use]
    pub const fn killed_late() -> Self {
        Self::Stopped {
            killed: true,
            driver: None,
        }
    }

    /// Outcome of a program that the driver did not restore to its GPUs, for this reason.
    #[must_use]
    pub const fn lost_by_driver(why: String) -> Self {
        Self::Stopped {
            killed: true,
            driver: Some(why),
        }
    }

    /// Outcome of a task whose pod was deleted by a client other than its executor.
    #[must_use]
    pub fn pod_deleted() -> Self {
        Self::Evicted {
            reason: "Deleted".to_owned(),
            message: "its pod was deleted from outside Muster".to_owned(),
        }
    }

    /// Outcome of a task whose pod the node refused to start: other pods hold the resources, or the
    /// node has less than its capacity says.
    #[must_use]
    pub fn refused(message: String) -> Self {
        Self::Evicted {
            reason: REFUSED.to_owned(),
            message,
        }
    }

    /// Whether the node refused to start the task.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Evicted { reason, .. } if reason == REFUSED)
    }

    /// Outcome of a task whose pod Kubernetes ended because it exceeded its disk limit. `message`
    /// is Kubernetes' own.
    #[must_use]
    pub fn over_limit(message: String) -> Self {
        Self::Evicted {
            reason: OVER_LIMIT.to_owned(),
            message,
        }
    }

    /// Whether the node is at fault, so that the job's `retries` are not charged.
    #[must_use]
    pub fn is_node_fault(&self) -> bool {
        match self {
            Self::Evicted { reason, .. } => reason != OVER_LIMIT,
            Self::LeaseExpired
            | Self::NodeLost
            | Self::Stopped {
                driver: Some(_), ..
            } => true,
            _ => false,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited { code, said } => {
                write!(f, "exited with code {code}")?;
                saying(f, said.as_deref())
            }
            Self::Signalled { signal, said } => {
                write!(f, "killed by signal {signal}")?;
                saying(f, said.as_deref())
            }
            Self::LaunchFailed { message } => write!(f, "could not be started: {message}"),
            Self::LeaseExpired => write!(f, "stopped by its node, which had lost its session"),
            Self::NodeLost => write!(f, "lost with its node or its shim"),
            Self::NeverStarted => write!(f, "withdrawn before it started"),
            Self::Stopped {
                driver: Some(why), ..
            } => write!(
                f,
                "ended, as the driver did not give it back to its GPUs: {why}"
            ),
            Self::Stopped { killed: false, .. } => write!(f, "stopped as requested"),
            Self::Stopped { killed: true, .. } => {
                write!(f, "killed after its grace period")
            }
            Self::OutOfMemory => write!(f, "killed for more memory than it was given"),
            Self::Evicted { reason, message } if reason == REFUSED => {
                write!(f, "refused by its node: {message}")
            }
            Self::Evicted { reason, message } if reason == OVER_LIMIT => {
                write!(f, "ended for more of the disk than it was given: {message}")
            }
            Self::Evicted { reason, message } => {
                write!(f, "evicted by Kubernetes: {reason}: {message}")
            }
        }
    }
}

fn saying(f: &mut fmt::Formatter<'_>, said: Option<&str>) -> fmt::Result {
    said.map_or(Ok(()), |said| write!(f, ", saying \"{said}\""))
}

impl Role {
    /// Returns `worker` or `ps_shard`, the stored and displayed form.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::Worker { .. } => "worker",
            Self::PsShard { .. } => "ps_shard",
        }
    }

    /// Returns the rank of a worker or the index of a shard.
    #[must_use]
    pub fn index(self) -> u32 {
        match self {
            Self::Worker { rank } => rank,
            Self::PsShard { index } => index,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Worker { rank } => write!(f, "worker-{rank}"),
            Self::PsShard { index } => write!(f, "ps-{index}"),
        }
    }
}
