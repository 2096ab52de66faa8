//! Responses that explain the size of a job or why it waits.

use super::job::WaitingView;
use crate::id::JobId;
use crate::job::JobPhase;
use crate::plan::PredictedBatch;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// State of a job in the newest round, and what keeps it from starting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ExplainView {
    pub job_id: JobId,
    pub name: String,
    pub phase: JobPhase,
    /// Decision of the newest stored round. Null before a round has considered the job, and after
    /// its end.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub decided: Option<DecidedView>,
    /// Why the job does not run; null unless it waits.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub waiting: Option<WaitingView>,
    /// Obstacles to the start of a waiting job; empty for other jobs.
    pub in_the_way: InTheWay,
}

/// Decision of a round about a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DecidedView {
    pub round: u64,
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// Why the job has this size, or waits, as text.
    pub why: String,
    /// Number of workers after the round.
    pub workers: u32,
    pub ps_shards: u32,
    /// Seconds saved per share of the cluster by one additional worker; null if it can have no
    /// more.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub next_worker_gain: Option<f64>,
    /// Job that would have got the next GPU, if there were one; null if all jobs have what they can
    /// use.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub runner_up: Option<RunnerUpView>,
    /// Predicted steps per second at its size.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub steps_per_s: Option<f64>,
    /// Predicted batch of a job with `batch_rule: goodput`, and its effect. Null for other jobs,
    /// before a measured update, and while the job holds no GPUs.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub batch: Option<BatchView>,
    /// Number of sizes at which its speed was measured; with 0 the prediction is a guess.
    pub measured_sizes: u32,
    /// Mean relative error of the speed model at those sizes.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub speed_error: Option<f64>,
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub steps_left: Option<f64>,
    /// The 80 % interval of `steps_left`: lower and upper bound.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub steps_left_between: Option<[f64; 2]>,
    /// Seconds until its end at this size.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub time_left_s: Option<f64>,
}

/// A predicted batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct BatchView {
    /// The batch and its effect, as text.
    pub message: String,
    pub detail: PredictedBatch,
}

impl From<PredictedBatch> for BatchView {
    fn from(predicted: PredictedBatch) -> Self {
        Self {
            message: predicted.to_string(),
            detail: predicted,
        }
    }
}

/// The best change that a round rejected because no capacity was left.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RunnerUpView {
    pub job_id: JobId,
    /// Null for a job of another tenant.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub name: Option<String>,
    /// Seconds saved per share of the cluster.
    pub gain: f64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct InTheWay {
    pub jobs: Vec<BlockingJob>,
    /// Nodes that have no room for the job, those with most free GPUs first; at most 16.
    pub nodes: Vec<BlockingNode>,
    /// Quota of the tenant, if it keeps the job from starting.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub quota: Option<BlockingQuota>,
}

/// A job that holds missing GPUs, or is stopping to release them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct BlockingJob {
    pub id: JobId,
    /// Null for a job of another tenant.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub name: Option<String>,
    /// GPUs that it holds now.
    pub held_gpus: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct BlockingNode {
    pub name: String,
    pub gpus: u32,
    pub free_gpus: u32,
    pub why: NodeObstacle,
}

/// Why a node takes no worker of the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum NodeObstacle {
    /// Fewer GPUs are free than one worker needs.
    Busy,
    /// It has room for a worker, but the job's minimum needs more such nodes.
    NotEnough,
    /// Its free GPUs are reserved for jobs that precede this one.
    Kept,
    /// Too little CPU or memory is free for the workers of a job without GPUs, or it is reserved
    /// for jobs that precede this one.
    NoCpuOrMemory,
    /// Even if empty, it has fewer GPUs, or less memory or CPU, than one worker needs.
    TooSmall,
    /// The constraints of the job (`resources.worker`) exclude it.
    Forbidden,
    /// Its tasks are processes, and the job's tasks must be pods.
    NoPods,
    /// It cannot run images, and the job's tasks run in one.
    NoImages,
    Drained,
    /// Its lease has expired.
    Down,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct BlockingQuota {
    /// GPUs that the job's minimum needs.
    pub needed_gpus: u32,
    /// GPUs that the tenant's other jobs hold.
    pub used_gpus: u32,
    pub gpu_quota: u32,
}

impl NodeObstacle {
    /// Returns the reason as text, for use after "node-a (2 of 8 GPUs free)".
    #[must_use]
    pub fn as_words(self) -> &'static str {
        match self {
            Self::Busy => "other jobs hold its GPUs",
            Self::NotEnough => "has room, but not for the whole minimum",
            Self::Kept => "its free GPUs are kept for jobs that precede this one",
            Self::NoCpuOrMemory => {
                "too little CPU or memory is free, or it is kept for jobs that precede this one"
            }
            Self::TooSmall => "too small for one worker",
            Self::Forbidden => "the job's resources.worker excludes it",
            Self::NoPods => "runs tasks as processes, and the job's must be pods",
            Self::NoImages => "cannot run images, and the job has one",
            Self::Drained => "drained",
            Self::Down => "down",
        }
    }
}
