//! Interface between scheduler, executor and task: assignments, launch files and reports.

use crate::checkpoint::{RequestResult, Written};
use crate::id::{JobId, NodeId, TaskId, TenantId};
use crate::idle::IdleReport;
use crate::metric::{MetricPoint, ObjectiveValues};
use crate::pace::PaceReport;
use crate::progress::{Evaluation, Sample};
use crate::spec::JobSpec;
use crate::task::{Outcome, Role};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// One task of a node's assignment. Its process reads it from `task.json` in its folder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskLaunch {
    pub task_id: TaskId,
    pub job_id: JobId,
    pub tenant_id: TenantId,
    /// Number of the tenant, from which an executor derives its Unix user. Schedulers of older
    /// releases do not send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_number: Option<u32>,
    /// Fence: peers refuse a task of another revision of the same job.
    pub revision: u64,
    pub role: Role,
    pub workers: u32,
    pub ps_shards: u32,
    pub gpus: Vec<u32>,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    /// Hex of 32 random bytes. It is new at every start of the job and stays during a resize in
    /// place. A task refuses peers that do not prove it.
    pub secret: String,
    pub spec: JobSpec,
    /// Newest step of which the store has a checkpoint. A task that finds no checkpoint on its disk
    /// must fail instead of starting fresh.
    pub resume_step: Option<u64>,
    /// Seconds of training time in earlier revisions, counted against `stop.wall_minutes`.
    pub trained_s: f64,
    /// Grace period of the cluster from SIGTERM to SIGKILL. It holds for every task whose lease has
    /// expired.
    pub grace_ms: u64,
    /// Kubernetes service account of the task's pod. Without it the pod runs as the node's other
    /// tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<String>,
    /// Metrics that the program of a trial logs and by which its study judges it. They are reported
    /// at each step, and not only as a series.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub objectives: BTreeSet<String>,
    /// Budget of the newest finished rung of a program in population-based training. Its checkpoint
    /// is copied before the program trains on, because other trials may begin there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_rung: Option<u64>,
}

/// The job's task set, `peers.json` in the task's folder. The executor rewrites it when an address
/// becomes known and at a resize in place. A task begins the exchange once it knows all addresses
/// that it needs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peers {
    /// Revision of the job that has this task set. It grows during the life of a task that remains
    /// in a resize.
    pub revision: u64,
    /// Workers in the order of their ranks. A worker that is no longer listed leaves.
    pub workers: Vec<Peer>,
    /// PS shards in the order of their index.
    pub ps_shards: Vec<Peer>,
    /// Slice number. The scheduler raises it at each suspension and each resumption: an odd number
    /// requests suspension.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub turn: u64,
    /// Steps whose checkpoints are protected from the job's retention policy, because other jobs
    /// start or may start from them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub spared: BTreeSet<u64>,
}

impl TaskLaunch {
    /// Milliseconds from a requested stop to SIGKILL: those of the job's document, or those of the
    /// cluster.
    #[must_use]
    pub fn stop_grace_ms(&self) -> u64 {
        let document = self.spec.preemption.grace_s;
        document.map_or(self.grace_ms, |seconds| u64::from(seconds) * 1_000)
    }
}

impl Peers {
    /// Returns the slice number if it requests suspension.
    #[must_use]
    pub fn held_turn(&self) -> Option<u64> {
        (self.turn % 2 == 1).then_some(self.turn)
    }
}

fn is_zero(turn: &u64) -> bool {
    *turn == 0
}

/// One task of the job, as its peers know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    pub task_id: TaskId,
    /// Tasks of one node may exchange through shared memory.
    pub node_id: NodeId,
    /// `host:port` of its data plane, once it listens.
    pub address: Option<String>,
}

/// Report of a task: one JSON object per line of `events.jsonl` in its folder. The file keeps
/// reports while the executor restarts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TaskReport {
    /// The data plane of the task accepts peers at this address.
    Listening {
        address: String,
    },
    /// The task is ready to train. It continues from this step; 0 is a fresh start.
    Ready {
        from_step: u64,
    },
    /// By rank 0 of an elastic launcher: its new worker processes continue from this step. All
    /// values after it that were reported before are of workers that were stopped.
    WorkersRestarted {
        from_step: u64,
    },
    Progress {
        #[serde(with = "crate::progress::filled")]
        sample: Sample,
    },
    /// Activity and own step time; sent by every worker.
    Pace {
        pace: PaceReport,
    },
    /// From the executor: the task of a program has become idle, or active again (`None`).
    Activity {
        idle: Option<IdleReport>,
    },
    Evaluated {
        #[serde(with = "crate::progress::filled")]
        evaluation: Evaluation,
    },
    /// Values of metrics that a user's program has logged, by rank 0. The points of a name are in
    /// the order of logging.
    Metrics {
        points: Vec<MetricPoint>,
    },
    /// Values of a study's objectives, unmerged, by rank 0 of a user's program.
    ObjectivesMeasured {
        measured: ObjectiveValues,
    },
    CheckpointWritten {
        checkpoint: Written,
    },
    CheckpointPruned {
        step: u64,
    },
    /// A user's program has written a checkpoint from which it continues at this step.
    CheckpointReported {
        step: u64,
        /// File or folder below its checkpoint folder. With a path the checkpoint counts once the
        /// node has registered it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<String>,
    },
    /// From the shim of rank 0: the request for a checkpoint has ended, and the stop follows.
    CheckpointRequestEnded {
        result: RequestResult,
        /// From the request to its end.
        waited_ms: u64,
    },
    /// From the coordinator: the remaining tasks continue from this step with another number of
    /// workers or shards. `pause_ms` lies between the last step of the old task set and the first
    /// step of the new one.
    Resized {
        step: u64,
        workers: u32,
        ps_shards: u32,
        pause_ms: u64,
    },
    /// From the coordinator: the connection to this task ended without a goodbye at this step. The
    /// other tasks continue without it.
    PeerGone {
        task_id: TaskId,
        step: u64,
    },
    /// The task is suspended with this slice number and uses no GPU. `step` is the next step of the
    /// built-in engine.
    Suspended {
        turn: u64,
        step: Option<u64>,
    },
    /// The task has resumed with this slice number.
    Continued {
        turn: u64,
        step: Option<u64>,
    },
    /// The task stopped in order at this step, as requested.
    Interrupted {
        step: u64,
    },
    /// Training is complete. `model_path` is relative to the checkpoint root.
    Finished {
        step: u64,
        reason: String,
        model_path: String,
    },
    /// The task failed. `retryable` is false if a restart cannot help (bad data set, diverged).
    Failed {
        message: String,
        retryable: bool,
        /// Requirement of the program that this node lacks, such as `mpirun`. Another node may have
        /// it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lacks: Option<String>,
    },
    Note {
        message: String,
    },
}

/// File in the folder of a suspended task; it contains the slice number.
pub const STANDING: &str = "standing";

/// State of a task as its node observes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub enum Observed {
    Running,
    Gone { outcome: Outcome },
}

/// Exit codes of a task's process.
pub mod exit_code {
    /// Training is complete, or the task stopped in order.
    pub const DONE: i32 = 0;
    /// The task failed; a `Failed` report gives the reason.
    pub const FAILED: i32 = 1;
    /// The connection to a peer was lost; the job's checkpoint is unaffected (`EX_TEMPFAIL`).
    pub const PEER_LOST: i32 = 75;
}
