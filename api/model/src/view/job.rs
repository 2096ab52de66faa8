//! Jobs and what belongs to them, as answered.

use crate::checkpoint::{Kept, Written};
use crate::event::Event;
use crate::forecast::Forecast;
use crate::id::{CheckpointId, JobId, NodeId, StudyId, TaskId, TenantId};
use crate::job::{Intent, JobPhase, JobState};
use crate::pace::{Doing, Suspicion};
use crate::packing::Usage;
use crate::progress::{Evaluation, Sample, Split};
use crate::spec::{JobSpec, Range};
use crate::study::TrialPhase;
use crate::task::{Role, TaskState};
use crate::wait::Waiting;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use time::OffsetDateTime;

/// A job as its users see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct JobView {
    pub id: JobId,
    /// Name of the tenant that owns it.
    pub tenant: String,
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub priority: i32,
    /// The name of `state`, to filter and show by.
    pub phase: JobPhase,
    pub state: JobState,
    /// What its users want of it; the next round obeys.
    pub intent: Intent,
    /// Of its task set: 0 before the first start, one more at every start.
    pub revision: u64,
    /// How often its owner has changed it.
    #[serde(default)]
    pub edits: u64,
    /// Restarts charged to `spec.retries`.
    pub failures: u32,
    /// Why it does not run; null unless it waits.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub waiting: Option<WaitingView>,
    pub workers: Count,
    pub ps_shards: Count,
    /// From the newest sample; null before the first.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub progress: Option<ProgressView>,
    /// Of the final model once the job has succeeded, relative to the checkpoint root.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub model_path: Option<String>,
    /// Why it failed; null unless it did.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub failure: Option<String>,
    /// Why it failed the last time that was charged to its retries, it may be running again; null before the first.
    #[cfg_attr(feature = "schema", schema(required = true))]
    #[serde(default)]
    pub last_failure: Option<String>,
    /// How often in a row nodes have refused tasks of it, as pods of others were there first. Its start may be refused eight times; from the ninth
    /// on each is charged to its retries. A job that runs as it is and cannot grow is charged nothing.
    #[serde(default)]
    pub put_off: u32,
    /// When it is expected to start and to end; null before the first forecast, and once it has ended.
    #[cfg_attr(feature = "schema", schema(required = true))]
    #[serde(default)]
    pub forecast: Option<Forecast>,
    /// Newest step that it can continue from; null before the first checkpoint.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub resume_step: Option<u64>,
    /// Name of the user who submitted it.
    pub submitted_by: String,
    #[serde(with = "time::serde::rfc3339")]
    pub submitted_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339::option")]
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub started_at: Option<OffsetDateTime>,
    #[serde(with = "time::serde::rfc3339::option")]
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub finished_at: Option<OffsetDateTime>,
    /// The trial that this job is; null unless a study made it.
    #[cfg_attr(feature = "schema", schema(required = true))]
    #[serde(default)]
    pub trial: Option<TrialRef>,
    /// The document as submitted, defaults filled in and later changes made.
    pub spec: JobSpec,
}

/// What is to become of a job's size and priority; what is left out stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct JobChange {
    /// The new `scale.workers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<Range>,
    /// The new `scale.ps_shards`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ps_shards: Option<Range>,
    /// -100 to 100; higher comes first within its tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = -100, maximum = 100))]
    pub priority: Option<i32>,
    /// The job's `edits` as they were read: refused if it was changed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edits: Option<u64>,
}

/// A trial of a study.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TrialRef {
    pub study_id: StudyId,
    pub number: u32,
    /// Where the study has it: the job of a `waiting` one has succeeded as far as it was told to train, and may be told to go on.
    pub state: TrialPhase,
}

/// Why a job does not run now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WaitingView {
    /// Stable name, such as `WaitingForGpus`.
    pub reason: String,
    /// The reason in a sentence, with its figures.
    pub message: String,
    /// The smallest change that would let it start, in words; null when nothing but time helps.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub smallest_change: Option<String>,
    /// Place among the waiting jobs, from 1; 0 before the first round has seen it.
    pub position: u32,
    /// The same, for programs.
    pub detail: Waiting,
}

/// How many tasks of one role a job has, and may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Count {
    /// Whose process is up.
    pub running: u32,
    pub min: u32,
    pub max: u32,
}

/// How far a job is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ProgressView {
    pub step: u64,
    /// The fewer of `stop.steps` and the steps of `stop.epochs`; null when neither is given.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub total_steps: Option<u64>,
    /// Null of a program that has told none.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub epoch: Option<f64>,
    /// Training loss; null of a program that has logged none.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub loss: Option<f64>,
    /// Share of training examples classified rightly, 0 to 1; null of a program that has told none.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub accuracy: Option<f64>,
    /// Of the newest evaluation; null before the first, and of a program that logs none.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub test_accuracy: Option<f64>,
    /// Likewise.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub test_loss: Option<f64>,
    /// Data of the newest evaluation; null before the first.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub evaluated_on: Option<Split>,
    /// Null of a program that has told none.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub examples_per_s: Option<f64>,
    /// Null before the first sample.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub steps_per_s: Option<f64>,
    /// Seconds to `total_steps` at the present rate; null when the job does not run or its end is not a number of steps.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub eta_s: Option<f64>,
    #[serde(with = "time::serde::rfc3339::option")]
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub sampled_at: Option<OffsetDateTime>,
}

/// One process of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TaskView {
    pub id: TaskId,
    pub job_id: JobId,
    /// `worker-0`, `ps-1`; the same in every revision.
    pub name: String,
    pub role: Role,
    pub revision: u64,
    pub node_id: NodeId,
    pub node: String,
    /// Indices of the node's GPUs or CPU slots that it was given.
    pub gpus: Vec<u32>,
    pub state: TaskState,
    /// The job with which it shares its GPU now, because both together are faster than in turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_with: Option<JobId>,
    /// Its job's rate beside that one, as a part of its rate alone; absent before it was measured. Turns give both together 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_beside: Option<f64>,
    /// What it was measured to use of its GPU; absent before it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// `host:port` of its data plane, once it listens.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub address: Option<String>,
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When it was known to be gone; null while it may hold anything.
    #[serde(with = "time::serde::rfc3339::option")]
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub released_at: Option<OffsetDateTime>,
    /// How fast it is by itself; absent of PS shards, of who has not told yet, and of those who are gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace: Option<PaceView>,
}

/// How fast a worker is by its own word, beside the others of its job: what verdicts on stragglers and hangs go by.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PaceView {
    /// Steps done, over the job's whole life.
    pub step: u64,
    pub doing: Doing,
    /// Milliseconds that a step takes it, waiting for others not counted; null where it does not tell.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub own_ms: Option<f64>,
    /// Its rate as a part of the median of the job's workers; null where fewer than two tell theirs.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub of_median: Option<f64>,
    /// When it was heard last.
    #[serde(with = "time::serde::rfc3339")]
    pub heard_at: OffsetDateTime,
    /// When its step last changed.
    #[serde(with = "time::serde::rfc3339")]
    pub moved_at: OffsetDateTime,
    /// As what it looks in every round since then; null of one that holds nobody up.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub suspected: Option<SuspectedView>,
}

/// That a worker looks as if it held the others up. It becomes a verdict when it has for as long as the job's document says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SuspectedView {
    pub of: Suspicion,
    #[serde(with = "time::serde::rfc3339")]
    pub since: OffsetDateTime,
}

/// One entry of the history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct EventView {
    /// Where a reader that has seen this event stands.
    pub cursor: String,
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// Null for what concerns nodes.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub tenant_id: Option<TenantId>,
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub job_id: Option<JobId>,
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub node_id: Option<NodeId>,
    pub event: Event,
}

/// One point of the training series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SampleView {
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    #[serde(flatten)]
    pub sample: Sample,
}

/// One pass over the test or validation split.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct EvaluationView {
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    #[serde(flatten)]
    pub evaluation: Evaluation,
}

/// The training series of a job. A job that went back to a checkpoint trains the steps after it again; the series then has only
/// the newer samples of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SeriesView {
    /// By step; thinned evenly to the number asked for.
    pub samples: Vec<SampleView>,
    /// By step; all of them.
    pub evaluations: Vec<EvaluationView>,
}

/// One checkpoint of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CheckpointView {
    pub id: CheckpointId,
    #[serde(flatten)]
    pub written: Written,
    /// Still there: the job's checkpoint policy has not pruned it. Its `files` can be downloaded then.
    pub retained: bool,
    /// Why it stays; empty once it is pruned, and for the moment in which it is about to be.
    pub kept: Vec<Kept>,
}
