//! Responses about jobs, their tasks, events, series and checkpoints.

use crate::checkpoint::{Kept, Written};
use crate::event::{Event, EventText};
use crate::forecast::Forecast;
use crate::id::{CheckpointId, JobId, NodeId, StudyId, TaskId, TenantId};
use crate::job::{Intent, JobPhase, JobState};
use crate::pace::{Doing, Suspicion};
use crate::packing::Usage;
use crate::progress::{self, Evaluation, Sample, Split};
use crate::spec::{JobSpec, Range};
use crate::study::TrialPhase;
use crate::task::{Role, TaskState};
use crate::wait::Waiting;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use time::OffsetDateTime;

/// A job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct JobView {
    pub id: JobId,
    /// Name of the tenant that owns it.
    pub tenant: String,
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub priority: i32,
    /// Name of the priority class that its document states; null without one. The job keeps its
    /// number if the class is changed or deleted.
    #[cfg_attr(feature = "schema", schema(required = true))]
    #[serde(default)]
    pub priority_class: Option<String>,
    /// Name of `state`.
    pub phase: JobPhase,
    pub state: JobState,
    /// State that its users want; takes effect in the next scheduling round.
    pub intent: Intent,
    /// Revision of its task set: 0 before the first start, +1 at every start and every resize in
    /// place.
    pub revision: u64,
    /// Number of changes of its document.
    #[serde(default)]
    pub edits: u64,
    /// Restarts charged to `spec.retries`.
    pub failures: u32,
    /// Why the job does not run; null unless it waits.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub waiting: Option<WaitingView>,
    pub workers: Count,
    pub ps_shards: Count,
    /// From the newest sample; null before the first.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub progress: Option<ProgressView>,
    /// Path of the final model, relative to the checkpoint root; null unless the job has succeeded.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub model_path: Option<String>,
    /// Why the job failed; null unless it did.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub failure: Option<String>,
    /// Reason of the last failure that was charged to its retries, also while the job runs again.
    /// Null before the first.
    #[cfg_attr(feature = "schema", schema(required = true))]
    #[serde(default)]
    pub last_failure: Option<String>,
    /// Number of consecutive refusals of its tasks by nodes, for example because other pods hold
    /// the resources. Eight refusals of a start are free; each further one is charged to its
    /// retries. A running job whose growth is refused is charged nothing.
    #[serde(default)]
    pub put_off: u32,
    /// Forecast of its start and end; null before the first forecast, and once the job has ended.
    #[cfg_attr(feature = "schema", schema(required = true))]
    #[serde(default)]
    pub forecast: Option<Forecast>,
    /// Idleness of all its tasks, once it has lasted long enough to be flagged; absent while it is
    /// active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<IdleView>,
    /// Step of the newest checkpoint from which it can continue; null before the first.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub resume_step: Option<u64>,
    /// Name of the user that submitted it.
    pub submitted_by: String,
    #[serde(with = "time::serde::rfc3339")]
    pub submitted_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339::option")]
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub started_at: Option<OffsetDateTime>,
    #[serde(with = "time::serde::rfc3339::option")]
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub finished_at: Option<OffsetDateTime>,
    /// Trial of the job; null unless a study created it.
    #[cfg_attr(feature = "schema", schema(required = true))]
    #[serde(default)]
    pub trial: Option<TrialRef>,
    /// The document as submitted, with defaults filled in and later changes applied.
    pub spec: JobSpec,
}

/// Change of a job's size range and priority. A field that is left out stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct JobChange {
    /// The new `scale.workers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<Range>,
    /// The new `scale.ps_shards`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ps_shards: Option<Range>,
    /// -100 to 100. It acts over all tenants: jobs of a higher priority are served first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = -100, maximum = 100))]
    pub priority: Option<i32>,
    /// Name of a priority class. Without `priority` the job gets the default of the class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 63))]
    pub priority_class: Option<String>,
    /// The `edits` of the job as read before. The change is refused if the job was changed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edits: Option<u64>,
}

impl JobChange {
    /// Whether the change is empty.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        let changes = Self {
            edits: None,
            ..self.clone()
        };
        changes == Self::default()
    }
}

/// A trial of a study.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TrialRef {
    pub study_id: StudyId,
    pub number: u32,
    /// State of the trial. The job of a `waiting` trial has succeeded at the end of its rung and
    /// may be continued.
    pub state: TrialPhase,
}

/// Why a job does not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WaitingView {
    /// Stable name, such as `WaitingForGpus`.
    pub reason: String,
    /// The reason as text, with its figures.
    pub message: String,
    /// The smallest change that would let the job start, as text; null if only time helps.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub smallest_change: Option<String>,
    /// Whether waiting does not help: the job, its tenant's quota or the cluster must change.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub for_good: bool,
    /// Position among the waiting jobs, from 1; 0 before the first round has considered it.
    pub position: u32,
    /// The same in machine-readable form.
    pub detail: Waiting,
}

impl From<Waiting> for WaitingView {
    fn from(waiting: Waiting) -> Self {
        Self {
            reason: waiting.why.name().to_owned(),
            message: waiting.why.to_string(),
            smallest_change: waiting.remedy(),
            for_good: waiting.why.is_for_good(),
            position: waiting.position,
            detail: waiting,
        }
    }
}

/// Number of tasks of one role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Count {
    /// Tasks whose process runs.
    pub running: u32,
    pub min: u32,
    pub max: u32,
}

/// Progress of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ProgressView {
    pub step: u64,
    /// The smaller of `stop.steps` and the steps of `stop.epochs`; null if neither is given.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub total_steps: Option<u64>,
    /// Null if the program has not reported it.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub epoch: Option<f64>,
    /// Training loss; null if the program has not logged it.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub loss: Option<f64>,
    /// Share of training examples classified correctly, 0 to 1; null if the program has not
    /// reported it.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub accuracy: Option<f64>,
    /// From the newest evaluation; null before the first, and if the program does not log it.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub test_accuracy: Option<f64>,
    /// From the newest evaluation; null before the first, and if the program does not log it.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub test_loss: Option<f64>,
    /// Data of the newest evaluation; null before the first.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub evaluated_on: Option<Split>,
    /// Null if the program has not reported it.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub examples_per_s: Option<f64>,
    /// Null before the first sample.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub steps_per_s: Option<f64>,
    /// Steps that an update is worth, with the batch rules `adascale` and `goodput`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain: Option<f64>,
    /// Seconds until `total_steps` at the present rate. Null if the job does not run, or if its end
    /// is not a number of steps.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub eta_s: Option<f64>,
    #[serde(with = "time::serde::rfc3339::option")]
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub sampled_at: Option<OffsetDateTime>,
}

impl ProgressView {
    /// Returns the examples of an update and its statistical efficiency: its gain over that of the
    /// same examples in updates of `batch` examples each, at most 1. `None` with a constant batch.
    #[must_use]
    pub fn update(&self, batch: u32) -> Option<(f64, f64)> {
        let gain = self.gain?;
        let examples = progress::batch(self.examples_per_s?, self.steps_per_s?, Some(gain))?;
        Some((examples, (gain * f64::from(batch) / examples).min(1.0)))
    }
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
    /// Indices of the node's GPUs or CPU slots that are assigned to the task.
    pub gpus: Vec<u32>,
    pub state: TaskState,
    /// How it ended, as text; null while it may hold resources.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub outcome: Option<String>,
    /// The job with which it shares its GPU now, because both together are faster than by time
    /// slices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_with: Option<JobId>,
    /// Rate of its job beside that one, divided by its rate alone; absent before it is measured. By
    /// time slices both parts would add up to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_beside: Option<f64>,
    /// Measured GPU use; absent before it is measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// `host:port` of its data plane, once it listens.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub address: Option<String>,
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// Time at which its exit was recorded; null while it may hold resources.
    #[serde(with = "time::serde::rfc3339::option")]
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub released_at: Option<OffsetDateTime>,
    /// Idleness of its program: no output, no metric, and no use of CPU or GPU. Absent while it is
    /// active or not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<IdleView>,
    /// Activity and own step time. Absent for PS shards, before the first report and after the
    /// exit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace: Option<PaceView>,
}

/// Idleness of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct IdleView {
    /// Time of the last activity.
    #[serde(with = "time::serde::rfc3339")]
    pub since: OffsetDateTime,
    /// The evidence, such as "no output for 41 min, no CPU or GPU use for 31 min".
    pub evidence: String,
    /// Time at which the interactive job ends without use; absent for other jobs.
    #[serde(
        default,
        with = "time::serde::rfc3339::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub ends_at: Option<OffsetDateTime>,
}

/// Activity and own step time of a worker, compared with the other workers of its job. Verdicts on
/// stragglers and hangs use it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PaceView {
    /// Steps done over the whole life of the job.
    pub step: u64,
    pub doing: Doing,
    /// Milliseconds of its own per step, without waiting for others; null if it does not report
    /// them.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub own_ms: Option<f64>,
    /// Its rate divided by the median of the job's workers; null if fewer than two report theirs.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub of_median: Option<f64>,
    /// Time of its newest report.
    #[serde(with = "time::serde::rfc3339")]
    pub heard_at: OffsetDateTime,
    /// Time of the last change of its step.
    #[serde(with = "time::serde::rfc3339")]
    pub moved_at: OffsetDateTime,
    /// Present suspicion against the worker; null if it holds up no other worker.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub suspected: Option<SuspectedView>,
}

/// Suspicion against a worker that seems to hold up the others. It becomes a verdict after the time
/// in the job's document.
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
    /// Position of a reader that has seen this event.
    pub cursor: String,
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// Null for events of nodes.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub tenant_id: Option<TenantId>,
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub job_id: Option<JobId>,
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub node_id: Option<NodeId>,
    /// The event as text, without a period.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub message: String,
    /// The reason, or what follows from the event; null if the message says all.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub detail: Option<String>,
    /// For `job_waits`: the reason as in a job's `waiting`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<WaitingView>,
    /// The event in machine-readable form.
    pub event: Event,
}

impl EventView {
    /// Returns the event as text. An API server of an earlier release sends none.
    #[must_use]
    pub fn text(&self) -> EventText {
        if self.message.is_empty() {
            self.event.text()
        } else {
            EventText {
                message: self.message.clone(),
                detail: self.detail.clone(),
            }
        }
    }
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

/// The training series of a job. After a restart from a checkpoint the job repeats the steps after
/// it; the series then contains only their newer samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SeriesView {
    /// Ordered by step; thinned evenly to the requested number.
    pub samples: Vec<SampleView>,
    /// Ordered by step; all of them.
    pub evaluations: Vec<EvaluationView>,
}

/// One checkpoint of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CheckpointView {
    pub id: CheckpointId,
    #[serde(flatten)]
    pub written: Written,
    /// Whether it still exists: the job's checkpoint policy has not pruned it. Its `files` can then
    /// be downloaded.
    pub retained: bool,
    /// Why it is retained; empty once it is pruned or is about to be.
    pub kept: Vec<Kept>,
    /// Number of files of a program's checkpoint, which is downloaded as one archive. Absent for
    /// the built-in engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_count: Option<u64>,
    /// Newest values that rank 0 of a program had logged, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_of_an_earlier_server_gets_its_text_here() {
        let sent = serde_json::json!({
            "cursor": "1-1", "at": "2026-01-01T00:00:00Z",
            "tenant_id": null, "job_id": null, "node_id": null,
            "event": { "kind": "job_submitted", "name": "cnn" },
        });
        let mut event: EventView = serde_json::from_value(sent).expect("an event");
        assert_eq!(event.text().message, "Submitted as cnn");
        // A later server may know the event better.
        event.message = "Submitted".to_owned();
        event.detail = Some("as a copy".to_owned());
        assert_eq!(event.text().to_string(), "Submitted; as a copy");
    }

    #[test]
    fn efficiency_of_an_update_is_its_gain_over_its_growth() {
        let progress = |gain, examples_per_s| ProgressView {
            step: 1,
            total_steps: None,
            epoch: None,
            loss: None,
            accuracy: None,
            test_accuracy: None,
            test_loss: None,
            evaluated_on: None,
            examples_per_s: Some(examples_per_s),
            steps_per_s: Some(30.0),
            gain,
            eta_s: None,
            sampled_at: None,
        };
        // 10 updates of 512 examples per second, each worth 3 of 4 possible steps.
        let update = progress(Some(3.0), 5_120.0).update(128);
        assert_eq!(update, Some((512.0, 0.75)));
        assert_eq!(progress(Some(1.0), 3_840.0).update(128), Some((128.0, 1.0)));
        assert_eq!(progress(None, 5_120.0).update(128), None);
        assert_eq!(progress(Some(3.0), 0.0).update(128), None);
    }
}
