//! Messages of the event streams besides events and series.

use super::job::SampleView;
use crate::id::{JobId, TaskId};
use serde::{Deserialize, Serialize};

/// Names of messages (the field `event:` of server-sent events).
pub mod name {
    /// The first message: [`super::Opened`].
    pub const OPENED: &str = "opened";
    /// An entry of the history: `EventView`.
    pub const EVENT: &str = "event";
    /// New points of the training series: [`super::ProgressMessage`].
    pub const PROGRESS: &str = "progress";
    /// A piece of a log: [`super::LogPiece`].
    pub const LOG: &str = "log";
    /// A task has ended, and the next of its place is followed: [`super::LogEnd`].
    pub const TASK_END: &str = "task_end";
    /// Nothing will follow; the reader need not connect again: [`super::LogEnd`].
    pub const END: &str = "end";
}

/// The stream stands. Whoever reads a list after this message and then applies what the stream brings misses nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Opened {
    /// Where the stream begins.
    pub cursor: String,
    /// Only where events after `cursor` were removed for their age: the newest of these. The reader has missed them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forgotten: Option<String>,
}

/// New samples of one job. They replace whatever the reader has of steps after `after_step`: a job that went back to a checkpoint
/// trains those steps again. Evaluations come as events.
///
/// A job's own stream brings its whole series. The tenant's stream brings only the newest sample of each running job, at most one
/// a second, for lists: there `after_step` is the step that it brought before, or 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ProgressMessage {
    pub job_id: JobId,
    pub after_step: u64,
    /// By step; at most 500, thinned evenly when more have come since the reader was here.
    pub samples: Vec<SampleView>,
}

/// What a task wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LogPiece {
    pub task_id: TaskId,
    /// `worker-0`, `ps-1`.
    pub task: String,
    pub revision: u64,
    /// Bytes of the task's log before this piece.
    pub offset: u64,
    /// Bytes of the task's log up to the end of this piece.
    pub next_offset: u64,
    /// Bytes that are not UTF-8 are replaced.
    pub text: String,
}

/// Why a log ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LogEnd {
    pub reason: String,
}
