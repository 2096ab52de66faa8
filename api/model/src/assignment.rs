//! What a node is told to run, what a task is given to start with, and what both report back.

use crate::checkpoint::Written;
use crate::id::{JobId, NodeId, TaskId, TenantId};
use crate::pace::PaceReport;
use crate::progress::{Evaluation, Sample};
use crate::spec::JobSpec;
use crate::task::{Outcome, Role};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

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
    /// Hex of 32 random bytes, new with every start of the job and kept while it is resized in place; a peer that does not know it
    /// is refused.
    pub secret: String,
    pub spec: JobSpec,
    /// Newest step that the store has a checkpoint of. A task that finds none that new on its disk must not start from nothing.
    pub resume_step: Option<u64>,
    /// Seconds of training time in earlier revisions, counted against `stop.wall_minutes`.
    pub trained_s: f64,
    /// From SIGTERM to SIGKILL.
    pub grace_ms: u64,
    /// As which of the cluster's accounts it runs, where tasks are pods; that of the node's other tasks when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<String>,
}

/// The job's whole task set, rewritten to `peers.json` in the task's folder as addresses become known and when the job is resized in
/// place; a task starts exchanging once it knows every address that it needs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peers {
    /// The job's revision at which this is its task set. It grows under a task that stays while others join or leave.
    pub revision: u64,
    /// A worker's rank among those that train is its place here. Who is not here any more leaves.
    pub workers: Vec<Peer>,
    /// In the order of their index.
    pub ps_shards: Vec<Peer>,
    /// Goes up each time that the workers are told to stand still, and each time that they are told to go on: odd while they are to
    /// stand still.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub turn: u64,
    /// Steps whose checkpoints stay whatever the job's policy, because other jobs begin from them or may yet.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub spared: BTreeSet<u64>,
}

impl Peers {
    /// The turn in which the workers are to stand still, if they are.
    #[must_use]
    pub fn held_turn(&self) -> Option<u64> {
        (self.turn % 2 == 1).then_some(self.turn)
    }
}

fn is_zero(turn: &u64) -> bool {
    *turn == 0
}

/// One task of the job as the others know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    pub task_id: TaskId,
    /// Tasks of one node may exchange through its memory.
    pub node_id: NodeId,
    /// `host:port` of its data plane, once it listens.
    pub address: Option<String>,
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
        #[serde(with = "crate::progress::filled")]
        sample: Sample,
    },
    /// Every worker: what it does, and how fast it is by itself.
    Pace {
        pace: PaceReport,
    },
    Evaluated {
        #[serde(with = "crate::progress::filled")]
        evaluation: Evaluation,
    },
    CheckpointWritten {
        checkpoint: Written,
    },
    CheckpointPruned {
        step: u64,
    },
    /// The chief: the survivors go on from this step with another number of workers or shards. `pause_ms` is from the last step of
    /// the old task set to the first of the new.
    Resized {
        step: u64,
        workers: u32,
        ps_shards: u32,
        pause_ms: u64,
    },
    /// The chief: this task went away without a word at this step, and the others go on without it.
    PeerGone {
        task_id: TaskId,
        step: u64,
    },
    /// It stands still in this turn and uses no GPU. `step` is the one that comes next, of the built-in engine.
    Suspended {
        turn: u64,
        step: Option<u64>,
    },
    /// It goes on in this turn.
    Continued {
        turn: u64,
        step: Option<u64>,
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
        /// What the program needs and this node does not have, such as `mpirun`: another node may have it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lacks: Option<String>,
    },
    Note {
        message: String,
    },
}

/// File in a task's folder while it stands still: the number of the turn.
pub const STANDING: &str = "standing";

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
