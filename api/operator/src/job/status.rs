//! Status of a TrainingJob object.

use crate::condition::{StatusCondition, TerminalCondition, rfc3339};
use crate::reconciliation::{REMOVED, Reconciliation, SubmittedStatus};
use crate::rejection::ObjectRejection;
use crate::resource::{Object, ObjectStatus};
use kube::core::NamespaceResourceScope;
use muster_model::id::JobId;
use muster_model::job::{Intent, JobPhase};
use muster_model::view::{Count, JobView, WaitingView};
use serde::{Deserialize, Serialize};

pub type TrainingJob = Object<JobStatus>;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobStatus {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub phase: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ps_shards: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eta: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failures: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submitted_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
    pub suspended: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    pub conditions: Vec<StatusCondition>,
}

impl ObjectStatus for JobStatus {
    const KIND: &'static str = "TrainingJob";
    const PLURAL: &'static str = "trainingjobs";
    type Scope = NamespaceResourceScope;

    fn conditions_mut(&mut self) -> &mut Vec<StatusCondition> {
        &mut self.conditions
    }
}

/// Message for a job that `spec.suspend` has paused.
const HELD: &str = "spec.suspend is true; without it the job resumes";

/// Most urgent difference between two statuses, ordered by urgency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatusDifference {
    None,
    /// Only the progress.
    Progress,
    /// Also the queue position, or the figures of an unchanged reason.
    Place,
    /// Any other field.
    Change,
}

impl SubmittedStatus for JobStatus {
    const BAD: &'static [&'static str] = &["Failed", "Misconfigured"];
    const ID: &'static str = "jobId";

    fn held(reconciliation: &Reconciliation<'_, Self>, tenant: &str) -> Self {
        let mut conditions = reconciliation.conditions();
        conditions.set("Submitted", false, "Suspended", "spec.suspend is true");
        conditions.set("Suspended", true, "Suspended", "spec.suspend is true");
        Self {
            phase: "Held".to_owned(),
            queue: Some(tenant.to_owned()),
            reason: Some("Suspended".to_owned()),
            message: Some("spec.suspend is true; without it the job is submitted".to_owned()),
            observed_generation: reconciliation.generation,
            conditions: conditions.done(),
            ..Self::default()
        }
    }

    fn refused(
        reconciliation: &Reconciliation<'_, Self>,
        tenant: &str,
        refused: &ObjectRejection,
    ) -> Self {
        let mut conditions = reconciliation.conditions();
        conditions.set("Submitted", false, refused.reason, &refused.message);
        conditions.misconfigured(Some(refused));
        Self {
            phase: "Misconfigured".to_owned(),
            queue: Some(tenant.to_owned()),
            reason: Some(refused.reason.to_owned()),
            message: Some(refused.message.clone()),
            observed_generation: reconciliation.generation,
            conditions: conditions.done(),
            ..Self::default()
        }
    }

    fn removed(reconciliation: &Reconciliation<'_, Self>) -> Self {
        let (conditions, message) = reconciliation.removal("job");
        Self {
            phase: "Cancelled".to_owned(),
            position: None,
            workers: None,
            ps_shards: None,
            replicas: None,
            eta: None,
            reason: Some(REMOVED.to_owned()),
            message: Some(message),
            observed_generation: reconciliation.generation,
            conditions,
            ..reconciliation.before.clone()
        }
    }

    fn phase(&self) -> &str {
        &self.phase
    }

    fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }

    fn queue(&self) -> Option<&str> {
        self.queue.as_deref()
    }

    fn is_submitted(&self) -> bool {
        self.job_id.is_some()
    }

    fn is_finished(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed" | "Cancelled")
    }

    fn observed_generation(&self) -> Option<i64> {
        self.observed_generation
    }

    fn conditions(&self) -> &[StatusCondition] {
        &self.conditions
    }
}

impl Reconciliation<'_, JobStatus> {
    /// Returns the status of an object with a job. `changed` is set if the spec differs from the
    /// submitted one.
    #[must_use]
    pub fn of(
        &self,
        job: &JobView,
        suspended: bool,
        changed: Option<&ObjectRejection>,
    ) -> JobStatus {
        let (reason, message) = if suspended && job.phase == JobPhase::Paused {
            (Some("Suspended".to_owned()), Some(HELD.to_owned()))
        } else {
            why(job)
        };
        let progress = job.progress.as_ref();
        let done = progress.map(|progress| match progress.total_steps {
            Some(total) if total > 0 => format!("{}%", progress.step.saturating_mul(100) / total),
            _ => format!("step {}", progress.step),
        });
        JobStatus {
            phase: phase_name(job.phase).to_owned(),
            job_id: Some(job.id),
            queue: Some(job.tenant.clone()),
            position: job
                .waiting
                .as_ref()
                .map(|waiting| waiting.position)
                .filter(|position| *position > 0),
            workers: Some(count(job.workers)),
            ps_shards: Some(count(job.ps_shards)),
            replicas: Some(job.workers.running),
            progress: done,
            step: progress.map(|progress| progress.step),
            eta: progress
                .and_then(|progress| progress.eta_s)
                .filter(|_| !job.phase.is_terminal())
                .map(duration),
            conditions: self.conditions_of(job, reason.as_deref(), message.as_deref(), changed),
            reason,
            message,
            model_path: job.model_path.clone(),
            failures: Some(job.failures),
            submitted_at: Some(rfc3339(job.submitted_at)),
            started_at: job.started_at.map(rfc3339),
            finished_at: job.finished_at.map(rfc3339),
            suspended,
            observed_generation: self.generation,
        }
    }

    fn conditions_of(
        &self,
        job: &JobView,
        reason: Option<&str>,
        message: Option<&str>,
        changed: Option<&ObjectRejection>,
    ) -> Vec<StatusCondition> {
        let mut conditions = self.conditions();
        conditions.set("Submitted", true, "Submitted", &format!("job {}", job.id));
        let admitted = job.phase.has_tasks() || job.phase == JobPhase::Succeeded;
        let name = phase_name(job.phase);
        let why = if admitted {
            "Admitted"
        } else {
            reason.unwrap_or(name)
        };
        conditions.set("Admitted", admitted, why, message.unwrap_or_default());
        let held =
            job.intent != Intent::Run && job.intent != Intent::Cancel && !job.phase.is_terminal();
        let by = if held { "Suspended" } else { "NotSuspended" };
        conditions.set("Suspended", held, by, "");
        let end = match job.phase {
            JobPhase::Succeeded => Some(TerminalCondition::Complete),
            JobPhase::Failed | JobPhase::Cancelled => Some(TerminalCondition::Failed),
            _ => None,
        };
        conditions.finished(end, name, job.failure.as_deref().unwrap_or_default());
        conditions.misconfigured(changed);
        conditions.done()
    }
}

impl JobStatus {
    /// Whether the object's present spec was rejected and not carried out.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.phase == "Misconfigured"
    }

    /// Returns the most urgent difference from `before`.
    #[must_use]
    pub fn news(&self, before: &Self) -> StatusDifference {
        if self == before {
            return StatusDifference::None;
        }
        let (now, before) = (self.without_progress(), before.without_progress());
        if now == before {
            return StatusDifference::Progress;
        }
        if now.without_place() == before.without_place() {
            return StatusDifference::Place;
        }
        StatusDifference::Change
    }

    fn without_progress(&self) -> Self {
        Self {
            progress: None,
            step: None,
            eta: None,
            ..self.clone()
        }
    }

    fn without_place(mut self) -> Self {
        self.position = None;
        self.message = None;
        for condition in &mut self.conditions {
            condition.message.clear();
        }
        self
    }
}

/// Returns the reason why the job does not run, and a sentence about it.
fn why(job: &JobView) -> (Option<String>, Option<String>) {
    if let Some(failure) = &job.failure {
        return (Some("Failed".to_owned()), Some(failure.clone()));
    }
    let Some(waiting) = &job.waiting else {
        return (None, None);
    };
    (Some(waiting.reason.clone()), Some(sentence(waiting)))
}

fn sentence(waiting: &WaitingView) -> String {
    match &waiting.smallest_change {
        Some(change) => format!("{}; {change}", waiting.message),
        None => waiting.message.clone(),
    }
}

/// Name of the phase in Kubernetes' style.
#[must_use]
pub fn phase_name(phase: JobPhase) -> &'static str {
    match phase {
        JobPhase::Queued => "Queued",
        JobPhase::Starting => "Starting",
        JobPhase::Running => "Running",
        JobPhase::Suspended => "Suspended",
        JobPhase::Stopping => "Stopping",
        JobPhase::Paused => "Paused",
        JobPhase::Succeeded => "Succeeded",
        JobPhase::Failed => "Failed",
        JobPhase::Cancelled => "Cancelled",
    }
}

/// `3/2..8`: running, minimum and maximum number.
fn count(count: Count) -> String {
    format!("{}/{}..{}", count.running, count.min, count.max)
}

/// Formats a duration like kubectl's ages but more coarsely, so that the status changes less often.
fn duration(seconds: f64) -> String {
    // Casting saturates for larger values.
    let seconds = seconds.max(0.0) as u64;
    match seconds {
        0..60 => format!("{}s", seconds.div_ceil(5) * 5),
        60..3_600 => format!("{}m", seconds.div_ceil(60)),
        3_600..172_800 => format!("{}h{}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d", seconds / 86_400),
    }
}
