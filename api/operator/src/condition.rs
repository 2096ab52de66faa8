//! Conditions of a status, as Kubernetes' own objects have them.

use crate::refused::Refused;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    /// `True` or `False`.
    pub status: String,
    pub reason: String,
    pub message: String,
    /// RFC 3339; since when `status` is what it is.
    pub last_transition_time: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// How a job or a study has ended. One that was cancelled has failed: it is not complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Complete,
    Failed,
}

/// The conditions of one look at an object.
#[derive(Debug)]
pub struct Conditions<'a> {
    before: &'a [Condition],
    generation: Option<i64>,
    now: OffsetDateTime,
    found: Vec<Condition>,
}

impl<'a> Conditions<'a> {
    /// `before` are those of the last look: what has not changed keeps its time.
    #[must_use]
    pub fn after(before: &'a [Condition], generation: Option<i64>, now: OffsetDateTime) -> Self {
        Self {
            before,
            generation,
            now,
            found: Vec::new(),
        }
    }

    /// Without a message the reason is one: some servers make null of an empty text in what is applied, and then refuse it.
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
        self.found.push(Condition {
            kind: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_transition_time: since,
            observed_generation: self.generation,
        });
    }

    /// `Finished`, and for an object that has ended one of `Complete` and `Failed`, by which `kubectl wait` tells success from failure.
    pub fn finished(&mut self, end: Option<End>, reason: &str, message: &str) {
        self.set("Finished", end.is_some(), reason, message);
        match end {
            Some(End::Complete) => self.set("Complete", true, reason, message),
            Some(End::Failed) => self.set("Failed", true, reason, message),
            None => {}
        }
    }

    /// Whether Muster will not have the object as it is.
    pub fn misconfigured(&mut self, refused: Option<&Refused>) {
        match refused {
            Some(refused) => self.set("Misconfigured", true, refused.reason, &refused.message),
            None => self.set("Misconfigured", false, "Accepted", ""),
        }
    }

    #[must_use]
    pub fn done(self) -> Vec<Condition> {
        self.found
    }
}

/// To the second, as Kubernetes writes times.
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
    fn what_has_not_changed_keeps_its_time() {
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
