//! A task: one process of a job at one revision, on one node, holding its GPUs until it is reported gone.

use crate::id::{JobId, NodeId, TaskId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// One process of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    pub id: TaskId,
    pub job_id: JobId,
    /// The job's revision that this task belongs to: its fence.
    pub revision: u64,
    pub role: Role,
    pub node_id: NodeId,
    /// Indices of the node's GPUs (or CPU slots) that it holds; empty for a PS shard without GPUs.
    pub gpus: Vec<u32>,
    pub state: TaskState,
    /// Where its data plane listens, once it does (PS shards).
    pub address: Option<String>,
}

/// What the process does in its job. "Worker" never means a daemon or a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Role {
    /// Computes gradients; rank 0 is the chief, which reports progress and writes checkpoints.
    Worker { rank: u32 },
    /// Holds a part of the parameters and of the optimizer's state.
    PsShard { index: u32 },
}

/// Where a task stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum TaskState {
    /// Committed to a node; the node has not said that it runs.
    Assigned,
    /// Its process is up.
    Running,
    /// Told to stand still at the end of its step; holds its GPUs until it says that it does.
    Suspending,
    /// Its process stands still and holds no GPU.
    Suspended,
    /// Told to stop; still holds its GPUs.
    Stopping,
    /// Told to stop while it was suspended: holds no GPU.
    Ending,
    /// Its process is gone and its GPUs are free.
    Released { outcome: Outcome },
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Outcome {
    Exited {
        code: i32,
        /// Of one that failed: the last line of its output, cleaned and cut; absent where it wrote nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        said: Option<String>,
    },
    Signalled {
        signal: i32,
        /// As of one that exited.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        said: Option<String>,
    },
    /// The process could not be started.
    LaunchFailed { message: String },
    /// The node had no session for longer than its lease and stopped the task itself.
    LeaseExpired,
    /// The node did not come back within its lease, by which time it has stopped its tasks itself; or the task died with the shim
    /// that held it, as when its machine loses power.
    NodeLost,
    /// Withdrawn before the node ever started it.
    NeverStarted,
    /// A command's process that was told to stop, and went; `killed` when it had to be killed after the grace.
    Stopped {
        killed: bool,
        /// It was no such order: the driver had taken the program off its GPUs, and this is why it did not give it back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        driver: Option<String>,
    },
    /// Killed for more memory than it was given.
    OutOfMemory,
    /// Kubernetes took its pod off the node, or somebody deleted it there; `reason` in Kubernetes' own words.
    Evicted { reason: String, message: String },
}

/// What can happen to a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum TaskEvent {
    /// The node reports its process as up.
    Up,
    /// Its job is to stand still.
    Suspend,
    /// It stands still.
    StoodStill,
    /// Its job goes on; it has its GPUs again.
    Continue,
    /// Its job stops.
    Stop,
    /// The node reports its process as gone, or the node itself is lost.
    Gone { outcome: Outcome },
}

/// An event that the present state does not allow; nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a {phase} task cannot take the event {event}")]
pub struct InvalidTransition {
    pub phase: &'static str,
    pub event: &'static str,
}

impl TaskState {
    /// The state after `event`. Reports may come twice (a node reconnects and tells all again), so a repeated `Up`, `Stop` or
    /// `Gone` leaves the state as it is.
    ///
    /// # Errors
    /// [`InvalidTransition`] when this state does not allow it.
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

    /// Whether it holds the GPUs that it was given.
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

/// As reasons of [`Outcome::Evicted`], beside those that Kubernetes gives.
const REFUSED: &str = "Refused";
const OVER_LIMIT: &str = "OverLimit";

impl Outcome {
    /// Of one of whose output nothing is known.
    #[must_use]
    pub const fn exited(code: i32) -> Self {
        Self::Exited { code, said: None }
    }

    /// Of one of whose output nothing is known.
    #[must_use]
    pub const fn signalled(signal: i32) -> Self {
        Self::Signalled { signal, said: None }
    }

    /// With the last line of the task's output, if it is of one that failed by itself.
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

    /// Whether the process ended by its own will and without an error, or as it was told to.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        matches!(
            self,
            Self::Exited { code: 0, .. } | Self::NeverStarted | Self::Stopped { driver: None, .. }
        )
    }

    /// Of a command that was told to stop, and did within its grace.
    #[must_use]
    pub const fn stopped() -> Self {
        Self::Stopped {
            killed: false,
            driver: None,
        }
    }

    /// Of one that had to be killed after it.
    #[must_use]
    pub const fn killed_late() -> Self {
        Self::Stopped {
            killed: true,
            driver: None,
        }
    }

    /// Of a program that the driver has lost, for this reason.
    #[must_use]
    pub const fn lost_by_driver(why: String) -> Self {
        Self::Stopped {
            killed: true,
            driver: Some(why),
        }
    }

    /// Of a task whose pod somebody else than its executor has deleted.
    #[must_use]
    pub fn pod_deleted() -> Self {
        Self::Evicted {
            reason: "Deleted".to_owned(),
            message: "its pod was deleted by somebody else".to_owned(),
        }
    }

    /// Of a task whose pod its node would not begin with, and why: somebody else's came first, or the node has less than it was taken for.
    #[must_use]
    pub fn refused(message: String) -> Self {
        Self::Evicted {
            reason: REFUSED.to_owned(),
            message,
        }
    }

    /// Whether its node would not begin with it.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Evicted { reason, .. } if reason == REFUSED)
    }

    /// Of a task whose pod Kubernetes has ended because it used more of the disk than it was given, in Kubernetes' words.
    #[must_use]
    pub fn over_limit(message: String) -> Self {
        Self::Evicted {
            reason: OVER_LIMIT.to_owned(),
            message,
        }
    }

    /// Whether the machine is to blame, so that the job's `retries` are not charged.
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
            Self::Stopped { killed: false, .. } => write!(f, "stopped as it was told"),
            Self::Stopped { killed: true, .. } => {
                write!(f, "told to stop, and killed when its grace was over")
            }
            Self::OutOfMemory => write!(f, "killed for more memory than it was given"),
            Self::Evicted { reason, message } if reason == REFUSED => {
                write!(f, "refused by its node: {message}")
            }
            Self::Evicted { reason, message } if reason == OVER_LIMIT => {
                write!(f, "ended for more of the disk than it was given: {message}")
            }
            Self::Evicted { reason, message } => {
                write!(f, "taken off its node by Kubernetes: {reason}: {message}")
            }
        }
    }
}

fn saying(f: &mut fmt::Formatter<'_>, said: Option<&str>) -> fmt::Result {
    said.map_or(Ok(()), |said| write!(f, ", saying \"{said}\""))
}

impl Role {
    /// `worker` or `ps_shard`, as stored and shown.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::Worker { .. } => "worker",
            Self::PsShard { .. } => "ps_shard",
        }
    }

    /// The rank of a worker, the index of a shard.
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
