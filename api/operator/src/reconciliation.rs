//! Statuses of jobs and studies, as a reconciliation sees and builds them. Pure.

use crate::condition::{Conditions, StatusCondition, TerminalCondition};
use crate::rejection::ObjectRejection;
use crate::resource::ObjectStatus;
use time::OffsetDateTime;

/// Reason of an object whose job or study was removed from Muster.
pub const REMOVED: &str = "Removed";

/// State of the object in one reconciliation.
#[derive(Debug)]
pub struct Reconciliation<'a, S> {
    pub before: &'a S,
    pub generation: Option<i64>,
    pub now: OffsetDateTime,
}

/// Status of an object for which something is submitted.
pub trait SubmittedStatus: ObjectStatus {
    /// Phases that are reported as a warning event.
    const BAD: &'static [&'static str];
    /// Status field with the id of the job or study.
    const ID: &'static str;

    /// Status of an object without a submission because `spec.suspend` is true.
    fn held(reconciliation: &Reconciliation<'_, Self>, tenant: &str) -> Self;
    /// Status of an object that Muster rejects.
    fn refused(
        reconciliation: &Reconciliation<'_, Self>,
        tenant: &str,
        refused: &ObjectRejection,
    ) -> Self;
    /// Status of an object whose unfinished job or study was removed from Muster.
    fn removed(reconciliation: &Reconciliation<'_, Self>) -> Self;

    fn phase(&self) -> &str;
    fn message(&self) -> Option<&str>;
    /// Name of the tenant.
    fn queue(&self) -> Option<&str>;
    /// Whether the status names a job or study.
    fn is_submitted(&self) -> bool;
    /// Whether the job or study is in a final state.
    fn is_finished(&self) -> bool;
    fn observed_generation(&self) -> Option<i64>;
    fn conditions(&self) -> &[StatusCondition];
}

impl<S: SubmittedStatus> Reconciliation<'_, S> {
    #[must_use]
    pub fn conditions(&self) -> Conditions<'_> {
        Conditions::after(self.before.conditions(), self.generation, self.now)
    }

    /// Returns the conditions and a message for an object whose job or study was removed.
    #[must_use]
    pub fn removal(&self, what: &str) -> (Vec<StatusCondition>, String) {
        let message = format!("the {what} was removed from Muster");
        let mut conditions = self.conditions();
        conditions.set("Submitted", true, "Submitted", "");
        conditions.finished(Some(TerminalCondition::Failed), REMOVED, &message);
        (conditions.done(), message)
    }

    /// Whether the spec has not changed since the last comparison, and was valid then.
    #[must_use]
    pub fn has_compared(&self) -> bool {
        self.before.observed_generation() == self.generation
            && !holds(self.before.conditions(), "Misconfigured")
    }
}

/// Whether the condition exists and is true.
#[must_use]
pub fn holds(conditions: &[StatusCondition], kind: &str) -> bool {
    conditions
        .iter()
        .any(|condition| condition.kind == kind && condition.status == "True")
}
