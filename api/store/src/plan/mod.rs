//! Both ends of a round: the snapshot that it plans from, and the commit of its decisions.

mod commit;
mod documents;
mod draft;
mod known_jobs;
mod load;
mod start;
mod turn;
mod wait;
mod window;

pub use commit::commit;
pub use load::Loader;
pub use window::JobsOutsideWindow;

use crate::family::{FamilySpeeds, PlacedSpeed, RestartTotals, UpdateTime};
use crate::fault::FaultCharge;
use muster_model::actor::Actor;
use muster_model::id::{JobId, NodeId, StudyId, TaskId};
use muster_model::idle::{IdleFinding, Idleness};
use muster_model::job::{Job, JobPhase};
use muster_model::node::Node;
use muster_model::pace::{Pace, Suspect};
use muster_model::packing::Measured;
use muster_model::plan::RoundPlan;
use muster_model::priority::PriorityClass;
use muster_model::progress::Sample;
use muster_model::task::Task;
use muster_model::tenant::Tenant;
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
    /// What is known of the families of the jobs, and of further families of their tenants if the
    /// nodes have several kinds of GPUs. Ordered by tenant and key.
    pub families: Vec<FamilySpeeds>,
    /// GPU-seconds of the newest ended jobs of the cluster, in ascending order. At most 64 values:
    /// means of equal parts of up to 1,000 jobs.
    pub history_gpu_s: Vec<f64>,
    /// Priority classes, ordered by name.
    pub priority_classes: Vec<PriorityClass>,
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
    /// Measured speeds by GPU kind and placement, ordered by kind and size.
    pub placed_speeds: Vec<PlacedSpeed>,
    /// Times of its updates, where its coordinator chooses the batch.
    pub update_times: Vec<UpdateTime>,
    /// Key of the job's family.
    pub family: Option<String>,
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
    /// Idleness of each task whose program is idle.
    pub idle_tasks: BTreeMap<TaskId, Idleness>,
    /// Idleness of the job that the history states.
    pub idle: Option<IdleFinding>,
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
    /// GPU-seconds that the job has held in all revisions, until `now`.
    pub attained_gpu_s: f64,
    /// Time at which `attained_gpu_s` reached the threshold of Tiresias.
    pub demoted_at: Option<OffsetDateTime>,
    /// Seconds of work that the job lost because it was stopped for other jobs.
    pub lost_s: f64,
    /// Step and time of the last checkpoint that the user's program has reported.
    pub reported: Option<(u64, OffsetDateTime)>,
    /// Milliseconds from the newest request for a checkpoint to its report; `None` without a
    /// request or a report.
    pub answer_ms: Option<u64>,
    /// Cost of the job's stops and starts so far.
    pub restarts: RestartTotals,
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

/// Identifiers of the revisions that a plan begins. The core has no randomness, so the caller of
/// the commit gives them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlanIds(BTreeMap<JobId, RevisionIds>);

/// Identifiers of a new revision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RevisionIds {
    /// Ids of the new tasks, in the order of the plan.
    pub tasks: Vec<TaskId>,
    /// Hex form of 32 random bytes, by which the tasks of a job authenticate each other. A resize
    /// does not use it: the remaining tasks have one.
    pub secret: String,
}

impl PlanIds {
    /// Takes the identifiers for every new revision of the plan from these sources.
    pub fn of(
        plan: &RoundPlan,
        mut task_id: impl FnMut() -> TaskId,
        mut secret: impl FnMut() -> String,
    ) -> Self {
        let mut ids = BTreeMap::new();
        for decision in &plan.decisions {
            let Some(new) = decision.action.new_tasks() else {
                continue;
            };
            let revision = RevisionIds {
                tasks: new.iter().map(|_| task_id()).collect(),
                secret: secret(),
            };
            ids.insert(decision.job, revision);
        }
        Self(ids)
    }

    /// Identifiers of the job's new revision; `None` if the plan begins none.
    #[must_use]
    pub fn revision(&self, job: JobId) -> Option<&RevisionIds> {
        self.0.get(&job)
    }
}

/// Result of a commit. A job in neither list had only wait reasons that did not change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommitOutcome {
    pub applied: Vec<JobId>,
    /// Jobs of which no decision was applied. The next round decides about them again.
    pub conflicts: Vec<Conflict>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    pub job_id: JobId,
    pub why: CommitRefusal,
}

/// Reason why the decisions about a job were not applied.
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
