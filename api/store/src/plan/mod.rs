//! Both ends of a round: the snapshot that it plans from, and the commit of its decisions.

mod commit;
mod documents;
mod draft;
mod load;
mod start;
mod turn;
mod wait;
mod window;

pub use commit::commit;
pub use load::Loader;
pub use window::JobsOutsideWindow;

use crate::fault::FaultCharge;
use muster_model::actor::Actor;
use muster_model::id::{JobId, NodeId, StudyId, TaskId};
use muster_model::job::{self, AfterStop, Job, JobPhase};
use muster_model::node::Node;
use muster_model::pace::{Pace, Suspect};
use muster_model::packing::Measured;
use muster_model::progress::Sample;
use muster_model::task::{Role, Task};
use muster_model::tenant::Tenant;
use muster_model::verdict::Verdict;
use muster_model::wait::Waiting;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use time::OffsetDateTime;

/// The snapshot from which a round plans.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    pub now: OffsetDateTime,
    /// Jobs that have not ended, by id: all jobs that hold something, jobs with an order to obey,
    /// and the first queued jobs.
    pub jobs: Vec<LoadedJob>,
    /// Tenants with queued jobs that are not loaded.
    pub left_out: Vec<JobsOutsideWindow>,
    /// Whether this round leaves work to the next one for which no notification is sent.
    pub has_more: bool,
    /// Nodes, ordered by id.
    pub nodes: Vec<Node>,
    /// Faults of the nodes within the last day.
    pub faults: BTreeMap<NodeId, Vec<FaultCharge>>,
    /// GPUs of each node that jobs have released within the last minute, each with its last
    /// release. GPUs released by jobs that still run are omitted.
    pub freed: BTreeMap<NodeId, Vec<(u32, OffsetDateTime)>>,
    /// Tenants, ordered by id.
    pub tenants: Vec<Tenant>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct LoadedJob {
    /// The job; its document lacks arguments, variables and files of a command.
    pub job: Job,
    /// Tasks of the present revision, including released ones; PS shards before workers, ordered by
    /// index.
    pub tasks: Vec<Task>,
    /// Unreleased tasks of earlier revisions that a resize in place has ordered to stop.
    pub leaving: Vec<Task>,
    /// Reported end of the present revision.
    pub finished: Option<JobFinishReport>,
    pub failed: Option<JobFailureReport>,
    /// Nodes that lack something that the job's command needs.
    pub unfit: Vec<NodeId>,
    /// Measured speeds, ordered by size.
    pub speeds: Vec<MeasuredSpeed>,
    pub latest: Option<Sample>,
    /// Whether `latest` belongs to the present revision.
    pub has_sampled: bool,
    /// Mean training losses of the newest epochs, at most 128. The newest epoch may be incomplete.
    pub epoch_losses: Vec<(u64, f64)>,
    /// Newest step from which the job can continue.
    pub resume_step: Option<u64>,
    /// Study of the trial, and its expected gain from 0 to 1 relative to the study's other trials.
    pub trial: Option<(StudyId, f64)>,
    /// Start time of the present revision.
    pub placed_at: Option<OffsetDateTime>,
    /// User that set the intent, and the time; `None` if no user has set it.
    pub asked: Option<(Option<Actor>, OffsetDateTime)>,
    /// Time at which the present revision was last suspended or continued.
    pub turned_at: Option<OffsetDateTime>,
    /// Whether the job runs on lent GPUs, which are reserved for a suspended gang.
    pub lent: bool,
    /// Time since which all tasks run without interruption.
    pub running_since: Option<OffsetDateTime>,
    /// Newest pace report of each task.
    pub paces: BTreeMap<TaskId, Pace>,
    /// Tasks that are guests on a packed GPU.
    pub guests: BTreeSet<TaskId>,
    /// GPU use and speed of a job with one worker, alone and beside other jobs.
    pub measured: Option<Measured>,
    /// Number of verdicts on the job's ranks so far.
    pub verdicts: u32,
    /// Number of consecutive placement rejections, of its start or of its growth.
    pub put_off: u32,
    /// Ranks that are suspected and may receive a verdict.
    pub suspects: Vec<Suspect>,
    /// Time in seconds in which all its tasks were up, including the present revision until `now`.
    pub trained_s: f64,
    /// Cost of the job's stops and starts so far.
    pub restarts: RestartTotals,
}

/// Sums over the measured stops and starts of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RestartTotals {
    /// Number of completed stops that were ordered while the job ran.
    pub stops: u32,
    /// Sum of the times from the order to the exit of the last task, in seconds.
    pub stop_s: f64,
    /// Number of starts after which the coordinator reported that it trains.
    pub starts: u32,
    /// Sum of the times from the start to that report, in seconds.
    pub start_s: f64,
    /// Number of these starts that resumed from a checkpoint.
    pub resumed: u32,
    /// Number of steps that were repeated.
    pub lost_steps: f64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFinishReport {
    pub step: u64,
    pub reason: String,
    /// Path relative to the checkpoint root.
    pub model_path: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFailureReport {
    pub message: String,
    pub retryable: bool,
    /// Capability that the node lacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacks: Option<String>,
}

/// Measured speed at one size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeasuredSpeed {
    pub workers: u32,
    pub ps_shards: u32,
    /// Mean over `samples`.
    pub steps_per_s: f64,
    pub samples: u64,
}

/// One decision about one job.
#[derive(Debug, Clone, PartialEq)]
pub struct CommitStep {
    pub job_id: JobId,
    /// The job's revision in the snapshot; the same for all steps of one job.
    pub expected_revision: u64,
    pub action: CommitAction,
}

#[derive(Debug, Clone, PartialEq)]
pub enum CommitAction {
    /// Starts a new revision with these tasks.
    Start {
        tasks: Vec<NewTask>,
        /// Hex form of 32 random bytes.
        secret: String,
        why: String,
        /// Whether its GPUs are lent, that is reserved for a suspended gang.
        lent: bool,
    },
    /// Starts a new revision that keeps all tasks but those of `leave` and adds those of `join`.
    Resize {
        leave: Vec<TaskId>,
        join: Vec<NewTask>,
        why: String,
        charge: job::Charge,
    },
    /// Every task of the present revision is up.
    Up,
    /// Suspends the workers.
    Suspend {
        why: String,
    },
    /// Gives the workers their GPUs again and continues them.
    Continue {
        why: String,
        /// The host on whose GPU the job continues as a guest.
        beside: Option<JobId>,
        /// Whether its GPUs are lent, that is reserved for a suspended gang.
        lent: bool,
    },
    /// Stops all tasks.
    Stop {
        then: AfterStop,
        why: String,
        charge: job::Charge,
        /// Earliest time of the next start.
        not_before: Option<OffsetDateTime>,
    },
    /// Counts these tasks as refused, because their nodes have not started them. Tasks that have
    /// started meanwhile stay.
    GiveUp {
        tasks: Vec<TaskId>,
        why: String,
    },
    /// The last task has been released.
    Release,
    Hold,
    Resume,
    Cancel,
    /// Records a verdict on one rank.
    Judge {
        verdict: Verdict,
    },
    /// Replaces the suspected ranks.
    Suspect {
        suspects: Vec<Suspect>,
    },
    /// The job remains queued, for this reason.
    Wait {
        waiting: Waiting,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTask {
    pub id: TaskId,
    pub role: Role,
    pub node_id: NodeId,
    pub gpus: Vec<u32>,
}

/// Result of a commit. A job in neither list had only wait reasons that did not change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommitOutcome {
    pub applied: Vec<JobId>,
    /// Jobs of which no step was applied. The next round decides about them again.
    pub conflicts: Vec<Conflict>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    pub job_id: JobId,
    pub why: CommitRefusal,
}

/// Reason why a job's steps were not applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommitRefusal {
    #[error("there is no such job, or its tenant deleted it")]
    NoSuchJob,
    #[error("the plan was made for revision {expected}; the job has revision {found}")]
    Revision { expected: u64, found: u64 },
    #[error("the job's state has changed since")]
    Transition(#[from] muster_model::job::InvalidTransition),
    #[error("a {} job does not wait", .phase.as_str())]
    NotWaiting { phase: JobPhase },
    #[error("{} of its tasks are not gone", .tasks.len())]
    TasksHeld { tasks: Vec<TaskId> },
    #[error("{} of its workers are not up, or not suspended", .tasks.len())]
    NotInTurn { tasks: Vec<TaskId> },
    #[error("task {task} of the plan is not one of its present tasks")]
    NoSuchTask { task: TaskId },
    #[error("a GPU that it was given is held, or a task of its new revision exists")]
    GpuHeld,
    #[error("job {host}, beside which it should continue, does not hold its GPU alone")]
    HostGone { host: JobId },
    #[error("the nodes {names:?} take no tasks now")]
    NodesUnavailable { names: Vec<String> },
    #[error("a task is placed on a node that does not exist")]
    NoSuchNode,
}
