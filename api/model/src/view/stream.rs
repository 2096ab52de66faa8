//! Messages of the event streams, besides events and series.

use super::job::SampleView;
use crate::id::{JobId, TaskId};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

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
    /// A task has ended; the stream follows its successor: [`super::LogEnd`].
    pub const TASK_END: &str = "task_end";
    /// The stream ends, and the reader need not connect again: [`super::LogEnd`].
    pub const END: &str = "end";
}

/// The stream is open. A reader that reads a list after this message and then applies the messages
/// of the stream misses nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Opened {
    /// Position at which the stream begins.
    pub cursor: String,
    /// Cursor of the newest event after `cursor` that retention has removed; the reader has missed
    /// these events. Absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forgotten: Option<String>,
}

/// New samples of one job. They replace all samples of steps after `after_step` that the reader
/// has: a job that restarts from a checkpoint repeats those steps. Evaluations arrive as events.
///
/// The stream of a job contains its whole series. The stream of a tenant contains only the newest
/// sample of each running job, at most one per second, for lists. There `after_step` is the step of
/// the last message, or 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ProgressMessage {
    pub job_id: JobId,
    pub after_step: u64,
    /// Ordered by step; at most 500. Thinned evenly if more have arrived since the last message.
    pub samples: Vec<SampleView>,
}

/// Output of a task.
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
    /// Time at which the scheduler received the first byte of this piece. Absent if a release that
    /// records no times has stored it.
    #[serde(
        default,
        with = "time::serde::rfc3339::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub received_at: Option<OffsetDateTime>,
    /// Bytes that are not UTF-8 are replaced.
    pub text: String,
}

/// Why a log ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LogEnd {
    pub reason: String,
}
