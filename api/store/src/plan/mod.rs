//! A round's two ends: the snapshot that it plans on, and the commit of what it decided.

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
pub use window::LeftOut;

use crate::fault::Charge;
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

/// Everything that a round plans on.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    pub now: OffsetDateTime,
    /// Jobs that have not ended, by id: all that hold something, those with an order to obey, and the first of those that wait.
    pub jobs: Vec<LoadedJob>,
    /// Tenants with queued jobs that are not among these.
    pub left_out: Vec<LeftOut>,
    /// Whether this round leaves work to the next one that no wake-up tells of.
    pub has_more: bool,
    /// By id.
    pub nodes: Vec<Node>,
    /// What was charged to them within a day.
    pub faults: BTreeMap<NodeId, Vec<Charge>>,
    /// Their GPUs that were given back within a minute by jobs that do not run any more, each with its last time.
    pub freed: BTreeMap<NodeId, Vec<(u32, OffsetDateTime)>>,
    /// By id.
    pub tenants: Vec<Tenant>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct LoadedJob {
    /// Its document is without the arguments, variables and files of a command.
    pub job: Job,
    /// Of the present revision, released ones too; PS shards before workers, by index.
    pub tasks: Vec<Task>,
    /// Of earlier revisions, those that a resize in place has told to stop and that are not gone.
    pub leaving: Vec<Task>,
    /// What the present revision reported of its end.
    pub finished: Option<Finished>,
    pub failed: Option<FailedReport>,
    /// Nodes that lack something its program needs.
    pub unfit: Vec<NodeId>,
    /// By size.
    pub speeds: Vec<SpeedPoint>,
    pub latest: Option<Sample>,
    /// Whether `latest` is of the present revision.
    pub has_sampled: bool,
    /// Mean training loss of the newest epochs, at most 128, the newest of them perhaps unfinished.
    pub epoch_losses: Vec<(u64, f64)>,
    /// Newest step that it can continue from.
    pub resume_step: Option<u64>,
    /// Of a study's trial: what it promises beside the study's others, 0 to 1.
    pub trial: Option<(StudyId, f64)>,
    /// When its present revision started.
    pub placed_at: Option<OffsetDateTime>,
    /// Who stated its intent, and when; `None` until somebody has.
    pub asked: Option<(Option<Actor>, OffsetDateTime)>,
    /// When its present revision was last suspended or continued.
    pub turned_at: Option<OffsetDateTime>,
    /// At work on GPUs that are kept for another job's turn.
    pub lent: bool,
    /// Since when all its tasks have been up, or at work again.
    pub running_since: Option<OffsetDateTime>,
    /// What its tasks told of their pace.
    pub paces: BTreeMap<TaskId, Pace>,
    /// Those that are the second on a GPU.
    pub guests: BTreeSet<TaskId>,
    /// What its one worker uses of its GPU, and how fast it is there, alone and beside others.
    pub measured: Option<Measured>,
    /// Verdicts on its ranks so far.
    pub verdicts: u32,
    /// How often in a row nodes have refused its start or, while it runs, its growth.
    pub put_off: u32,
    /// Ranks that may come to one.
    pub suspects: Vec<Suspect>,
    /// Seconds during which all of its tasks were up, the present revision's until `now` included.
    pub trained_s: f64,
    /// What stops and starts have cost it so far.
    pub restarts: Restarts,
}

/// Sums over the stops and starts of a job, as far as they were measured.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Restarts {
    /// Times that it was told to stop while it ran, and had stopped.
    pub stops: u32,
    /// Seconds from the order until its last task was gone.
    pub stop_s: f64,
    /// Times that its chief said after a start that it trains.
    pub starts: u32,
    /// Seconds from the start until then.
    pub start_s: f64,
    /// Of these, those from a checkpoint.
    pub resumed: u32,
    /// Steps that it did once more.
    pub lost_steps: f64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    pub step: u64,
    pub reason: String,
    /// Relative to the checkpoint root.
    pub model_path: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedReport {
    pub message: String,
    pub retryable: bool,
    /// What its node does not have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacks: Option<String>,
}

/// Measured speed at one size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SpeedPoint {
    pub workers: u32,
    pub ps_shards: u32,
    /// Mean over `samples`.
    pub steps_per_s: f64,
    pub samples: u64,
}

/// One decision about one job.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    pub job_id: JobId,
    /// The job's revision in the snapshot. All steps of one job name the same.
    pub expected_revision: u64,
    pub action: Action,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// A new revision with these tasks.
    Start {
        tasks: Vec<NewTask>,
        /// Hex of 32 random bytes.
        secret: String,
        why: String,
        /// On GPUs that are kept for another job's turn.
        lent: bool,
    },
    /// A new revision in which all tasks but these go on, with these new ones.
    Resize {
        leave: Vec<TaskId>,
        join: Vec<NewTask>,
        why: String,
        charge: job::Charge,
    },
    /// Every task of the present revision is up.
    Up,
    /// Its workers shall stand still.
    Suspend {
        why: String,
    },
    /// Its workers have their GPUs again and go on.
    Continue {
        why: String,
        /// The job that holds them, beside which it goes on as a guest.
        beside: Option<JobId>,
        /// On GPUs that are kept for another job's turn.
        lent: bool,
    },
    /// Its tasks shall end.
    Stop {
        then: AfterStop,
        why: String,
        charge: job::Charge,
        /// Do not start again before.
        not_before: Option<OffsetDateTime>,
    },
    /// These tasks, which their nodes have not started, count as refused. Those that have come up since stay.
    GiveUp {
        tasks: Vec<TaskId>,
        why: String,
    },
    /// Its last task is gone.
    Release,
    Hold,
    Resume,
    Cancel,
    /// One of its ranks holds the others up.
    Judge {
        verdict: Verdict,
    },
    /// These ranks look so, in place of those before.
    Suspect {
        suspects: Vec<Suspect>,
    },
    /// It goes on waiting, for this reason.
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

/// What became of a plan. A job in neither list had only waits that said nothing new.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommitOutcome {
    pub applied: Vec<JobId>,
    /// Nothing of these jobs' steps was applied; the next round decides on them again.
    pub conflicts: Vec<Conflict>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    pub job_id: JobId,
    pub why: Refusal,
}

/// Why a job's steps were not applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
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
    #[error("{} of its workers are not up, or do not stand still", .tasks.len())]
    NotInTurn { tasks: Vec<TaskId> },
    #[error("task {task} of the plan is not one of its present tasks")]
    NoSuchTask { task: TaskId },
    #[error("a GPU that it was given is held, or a task of its new revision exists")]
    GpuHeld,
    #[error("job {host}, beside which it was to go on, does not hold its GPU alone")]
    HostGone { host: JobId },
    #[error("the nodes {names:?} take no tasks now")]
    NodesUnavailable { names: Vec<String> },
    #[error("a task is placed on a node that does not exist")]
    NoSuchNode,
}
