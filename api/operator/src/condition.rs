//! Conditions of a status, in the format of Kubernetes' own objects.

use crate::rejection::ObjectRejection;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusCondition {
    #[serde(rename = "type")]
    pub kind: String,
    /// `True` or `False`.
    pub status: String,
    pub reason: String,
    pub message: String,
    /// RFC 3339; time since which `status` has its value.
    pub last_transition_time: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// Result of a job or a study that has ended. A cancelled one counts as failed, because it is not
/// complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TerminalCondition {
    Complete,
    Failed,
}

/// Conditions that one reconciliation of an object sets.
#[derive(Debug)]
pub struct Conditions<'a> {
    before: &'a [StatusCondition],
    generation: Option<i64>,
    now: OffsetDateTime,
    found: Vec<StatusCondition>,
}

impl<'a> Conditions<'a> {
    /// `before` are the conditions of the previous reconciliation; unchanged conditions keep their
    /// transition time.
    #[must_use]
    pub fn after(
        before: &'a [StatusCondition],
        generation: Option<i64>,
        now: OffsetDateTime,
    ) -> Self {
        Self {
            before,
            generation,
            now,
            found: Vec::new(),
        }
    }

    /// Sets a condition. An empty message is replaced by the reason, because some servers convert
    /// an applied empty string to null and then reject it.
    pub fn set(&mut self, kind: &str, holds: bool, reason: &str, message: &str) {
        let message = if message.is_empty() { reason } else { message };
        let status = if holds { "True" } else { "False" };
        let since = self
            .before
            .iter()
            .find(|before| before.kind == kind && before.status == status)
            .map_or_else(
                || rfc3339(self.now),
                |before| before.last_transition_time.clone(),
            );
        self.found.push(StatusCondition {
            kind: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_transition_time: since,
            observed_generation: self.generation,
        });
    }

    /// Sets `Finished`, and for an object that has ended also `Complete` or `Failed`. `kubectl
    /// wait` needs them to distinguish success from failure.
    pub fn finished(&mut self, end: Option<TerminalCondition>, reason: &str, message: &str) {
        self.set("Finished", end.is_some(), reason, message);
        match end {
            Some(TerminalCondition::Complete) => self.set("Complete", true, reason, message),
            Some(TerminalCondition::Failed) => self.set("Failed", true, reason, message),
            None => {}
        }
    }

    /// Sets whether Muster rejects the object in its present form.
    pub fn misconfigured(&mut self, refused: Option<&ObjectRejection>) {
        match refused {
            Some(refused) => self.set("Misconfigured", true, refused.reason, &refused.message),
            None => self.set("Misconfigured", false, "Accepted", ""),
        }
    }

    #[must_use]
    pub fn done(self) -> Vec<StatusCondition> {
        self.found
    }
}

/// Formats a time to the second, as Kubernetes does.
#[must_use]
pub fn rfc3339(at: OffsetDateTime) -> String {
    let whole = at.replace_nanosecond(0).unwrap_or(at);
    whole
        .to_offset(time::UtcOffset::UTC)
        .format(&Rfc3339)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::Duration;

    #[test]
    fn unchanged_conditions_keep_their_transition_time() {
        let then = OffsetDateTime::UNIX_EPOCH;
        let mut first = Conditions::after(&[], Some(1), then);
        first.set("Admitted", false, "WaitingForGpus", "needs 2");
        let first = first.done();
        let later = then + Duration::hours(1);
        let mut second = Conditions::after(&first, Some(2), later);
        second.set("Admitted", false, "WaitingForQuota", "needs 2");
        let second = second.done();
        assert_eq!(second[0].last_transition_time, "1970-01-01T00:00:00Z");
        assert_eq!(second[0].reason, "WaitingForQuota");
        let mut third = Conditions::after(&second, Some(2), later);
        third.set("Admitted", true, "Admitted", "");
        assert_eq!(third.done()[0].last_transition_time, "1970-01-01T01:00:00Z");
    }
}
