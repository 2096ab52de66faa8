//! Checks at submission the parts of a document that rules of the tenant restrict: the cluster
//! objects of `pod`, and the caps on `preemption`.

use crate::auth::Caller;
use crate::problem::{ApiError, ProblemKind};
use muster_model::spec::{JobSpec, Pod, Preemption};
use muster_model::study::StudySpec;
use muster_store::{PgConnection, tenant};

/// Restricted parts of a document.
pub struct RestrictedParts {
    pod: Pod,
    preemption: Preemption,
    /// Position of the job in the document, with a dot; empty for the job's own document.
    at: &'static str,
    kind: ProblemKind,
}

impl RestrictedParts {
    #[must_use]
    pub fn of_job(spec: &JobSpec) -> Self {
        Self {
            pod: spec.pod.clone(),
            preemption: spec.preemption,
            at: "",
            kind: ProblemKind::InvalidJob,
        }
    }

    /// Returns the parts that all trials of a study have.
    #[must_use]
    pub fn of_study(spec: &StudySpec) -> Self {
        Self {
            pod: spec.pod(),
            preemption: spec.preemption(),
            at: "job.",
            kind: ProblemKind::InvalidStudy,
        }
    }

    /// Whether the document leaves all of them out, so that no rule refuses it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pod.is_empty() && self.preemption.is_default()
    }

    /// Checks the parts in the caller's scope; no query if they are left out.
    ///
    /// # Errors
    /// A refusal with one error per object that the tenant may not use, and per value above a cap.
    pub async fn check(&self, conn: &mut PgConnection, caller: &Caller) -> Result<(), ApiError> {
        if self.is_empty() {
            return Ok(());
        }
        let found = tenant::get(conn, caller.tenant_id).await?;
        let (pods, caps) = found
            .map(|found| (found.pods, found.preemption))
            .unwrap_or_default();
        let (tenant, at) = (&caller.tenant_name, self.at);
        let mut errors = Vec::new();
        if !self.pod.is_empty() {
            let checked = pods.allow(&self.pod, tenant, &format!("{at}pod"));
            errors.extend(checked.err().into_iter().flatten());
        }
        let checked = caps.allow(&self.preemption, tenant, &format!("{at}preemption"));
        errors.extend(checked.err().into_iter().flatten());
        if errors.is_empty() {
            Ok(())
        } else {
            Err(ApiError::of_fields(self.kind, errors))
        }
    }
}
