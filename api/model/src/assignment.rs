//! What a node is told to run, what a task is given to start with, and what both report back.

use crate::checkpoint::Written;
use crate::id::{JobId, TaskId, TenantId};
use crate::progress::{Evaluation, Sample};
use crate::spec::JobSpec;
use crate::task::{Outcome, Role};
use serde::{Deserialize, Serialize};

/// One task as its node is told of it, and as its process reads it from `task.json` in its folder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskLaunch {
    pub task_id: TaskId,
    pub job_id: JobId,
    pub tenant_id: TenantId,
    /// Fence: peers refuse another revision of the same job.
    pub revision: u64,
    pub role: Role,
    pub workers: u32,
    pub ps_shards: u32,
    pub gpus: Vec<u32>,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    /// Hex of 32 random bytes, new with every revision; a peer that does not know it is refused.
    pub secret: String,
    pub spec: JobSpec,
    /// Newest step that the store has a checkpoint of. A task that finds none that new on its disk must not start from nothing.
    pub resume_step: Option<u64>,
    /// Seconds of training time in earlier revisions, counted against `stop.wall_minutes`.
    pub trained_s: f64,
    /// From SIGTERM to SIGKILL.
    pub grace_ms: u64,
}

/// Addresses (`host:port`) of the job's PS shards in the order of their index, rewritten to `peers.json` in the task's folder
/// as they become known; a task starts exchanging once every entry is there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peers {
    pub ps_shards: Vec<Option<String>>,
}

/// What a task tells, one JSON object a line in `events.jsonl` of its folder. Kept in a file, so that nothing is lost while its
/// executor restarts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TaskReport {
    /// Its data plane accepts peers here.
    Listening {
        address: String,
    },
    /// It is ready to train; the step it continues from, 0 for a fresh start.
    Ready {
        from_step: u64,
    },
    Progress {
        sample: Sample,
    },
    Evaluated {
        evaluation: Evaluation,
    },
    CheckpointWritten {
        checkpoint: Written,
    },
    CheckpointPruned {
        step: u64,
    },
    /// It stopped in order at this step, as it was told.
    Interrupted {
        step: u64,
    },
    /// The job is done. `model_path` is relative to the checkpoint root.
    Finished {
        step: u64,
        reason: String,
        model_path: String,
    },
    /// It cannot go on. `retryable` is false when a restart cannot help (bad data set, diverged).
    Failed {
        message: String,
        retryable: bool,
    },
    Note {
        message: String,
    },
}

/// What a node observes of one of its tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub enum Observed {
    Running,
    Gone { outcome: Outcome },
}

/// Exit codes of a task's process.
pub mod exit_code {
    /// Trained to its end, or stopped in order.
    pub const DONE: i32 = 0;
    /// Failed; a `Failed` report says why.
    pub const FAILED: i32 = 1;
    /// A peer went away before the end; the job's checkpoint is as good as before (`EX_TEMPFAIL`).
    pub const PEER_LOST: i32 = 75;
}
