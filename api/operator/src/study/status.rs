//! Status of a `Study` object: its fields, and how they follow from the study. Pure.

use crate::condition::{StatusCondition, TerminalCondition, rfc3339};
use crate::reconciliation::{REMOVED, Reconciliation, SubmittedStatus, holds};
use crate::rejection::ObjectRejection;
use crate::resource::{Object, ObjectStatus};
use kube::core::NamespaceResourceScope;
use muster_model::id::StudyId;
use muster_model::study::StudyPhase;
use muster_model::view::{StudyView, TrialView};
use serde::{Deserialize, Serialize};

pub type StudyObject = Object<StudyStatus>;

/// The field `status`. `crd::study` describes each field.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StudyStatus {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub phase: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub study_id: Option<StudyId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trials: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
    pub suspended: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    pub conditions: Vec<StatusCondition>,
}

impl ObjectStatus for StudyStatus {
    const KIND: &'static str = "Study";
    const PLURAL: &'static str = "studies";
    type Scope = NamespaceResourceScope;

    fn conditions_mut(&mut self) -> &mut Vec<StatusCondition> {
        &mut self.conditions
    }
}

/// Progress of a pause that `spec.suspend` requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StudyPause {
    /// No pause by this operator; if the study is paused, another user has paused it.
    None,
    /// The operator is about to request the pause.
    Wanted,
    /// The API server has accepted the request.
    Ordered,
}

impl SubmittedStatus for StudyStatus {
    const BAD: &'static [&'static str] = &["Misconfigured"];
    const ID: &'static str = "studyId";

    fn held(reconciliation: &Reconciliation<'_, Self>, tenant: &str) -> Self {
        let why = ObjectRejection {
            reason: "Suspended",
            message: "spec.suspend is true; without it the study is created".to_owned(),
        };
        reconciliation.without_study("Held", tenant, &why)
    }

    fn refused(
        reconciliation: &Reconciliation<'_, Self>,
        tenant: &str,
        rejection: &ObjectRejection,
    ) -> Self {
        reconciliation.without_study("Misconfigured", tenant, rejection)
    }

    fn removed(reconciliation: &Reconciliation<'_, Self>) -> Self {
        let (conditions, message) = reconciliation.removal("study");
        Self {
            phase: "Cancelled".to_owned(),
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
        self.study_id.is_some()
    }

    fn is_finished(&self) -> bool {
        matches!(self.phase.as_str(), "Finished" | "Cancelled")
    }

    fn observed_generation(&self) -> Option<i64> {
        self.observed_generation
    }

    fn conditions(&self) -> &[StatusCondition] {
        &self.conditions
    }
}

impl Reconciliation<'_, StudyStatus> {
    /// Status of an object without a study. The phase is `Held` if `spec.suspend` prevents the
    /// creation, and `Misconfigured` if Muster rejects the document.
    fn without_study(&self, phase: &str, tenant: &str, rejection: &ObjectRejection) -> StudyStatus {
        let mut conditions = self.conditions();
        let is_held = phase == "Held";
        conditions.set("Submitted", false, rejection.reason, &rejection.message);
        conditions.set("Suspended", is_held, rejection.reason, "");
        conditions.set(
            "Misconfigured",
            !is_held,
            rejection.reason,
            &rejection.message,
        );
        StudyStatus {
            phase: phase.to_owned(),
            queue: Some(tenant.to_owned()),
            reason: Some(rejection.reason.to_owned()),
            message: Some(rejection.message.clone()),
            observed_generation: self.generation,
            conditions: conditions.done(),
            ..StudyStatus::default()
        }
    }

    /// Returns the status of an object with a study. `changed` is set if the spec differs from the
    /// created study.
    #[must_use]
    pub fn of(
        &self,
        study: &StudyView,
        pause: StudyPause,
        changed: Option<&ObjectRejection>,
    ) -> StudyStatus {
        let counts = &study.trials;
        let name = phase_name(study.phase);
        let is_over = study.phase.is_over();
        let mut conditions = self.conditions();
        conditions.set(
            "Submitted",
            true,
            "Submitted",
            &format!("study {}", study.id),
        );
        let is_suspended =
            !is_over && (pause == StudyPause::Ordered || study.phase == StudyPhase::Paused);
        let reason = if is_suspended {
            "Suspended"
        } else {
            "NotSuspended"
        };
        conditions.set("Suspended", is_suspended, reason, "");
        let end = match study.phase {
            StudyPhase::Finished => Some(TerminalCondition::Complete),
            StudyPhase::Cancelled => Some(TerminalCondition::Failed),
            _ => None,
        };
        conditions.finished(end, name, "");
        conditions.misconfigured(changed);
        StudyStatus {
            phase: name.to_owned(),
            study_id: Some(study.id),
            queue: Some(study.tenant.clone()),
            trials: Some(format!(
                "{}/{}",
                counts.completed + counts.stopped + counts.failed,
                counts.limit
            )),
            running: Some(counts.running),
            failed: Some(counts.failed),
            best: study.best.first().map(best),
            reason: changed.map(|changed| changed.reason.to_owned()),
            message: changed.map(|changed| changed.message.clone()),
            finished_at: study.finished_at.map(rfc3339),
            suspended: pause != StudyPause::None,
            observed_generation: self.generation,
            conditions: conditions.done(),
        }
    }
}

impl StudyStatus {
    /// Returns the progress of the pause that the status records. The field `suspended` records
    /// that the operator wants the pause, the condition `Suspended` that the API server has
    /// accepted it.
    #[must_use]
    pub fn pause(&self) -> StudyPause {
        match (self.suspended, holds(&self.conditions, "Suspended")) {
            (false, _) => StudyPause::None,
            (true, false) => StudyPause::Wanted,
            (true, true) => StudyPause::Ordered,
        }
    }

    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.phase == phase_name(StudyPhase::Paused)
    }
}

/// Name of the phase in Kubernetes' style.
fn phase_name(phase: StudyPhase) -> &'static str {
    match phase {
        StudyPhase::Created => "Created",
        StudyPhase::Running => "Running",
        StudyPhase::Paused => "Paused",
        StudyPhase::Closing => "Closing",
        StudyPhase::Finished => "Finished",
        StudyPhase::Cancelled => "Cancelled",
    }
}

/// Four decimal places, or an exponent: metrics of programs have any size.
fn number(value: f64) -> String {
    if value == 0.0 || (1e-3..1e6).contains(&value.abs()) {
        format!("{value:.4}")
    } else {
        format!("{value:.3e}")
    }
}

/// Number of the trial and its result, one value for each objective.
fn best(trial: &TrialView) -> String {
    let values: Vec<String> = trial
        .outcome
        .iter()
        .flat_map(|outcome| &outcome.values)
        .map(|value| value.map_or_else(|| "none".to_owned(), number))
        .collect();
    format!("#{} {}", trial.number, values.join(", "))
}
