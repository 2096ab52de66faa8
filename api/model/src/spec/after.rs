//! The `after` part of the job document: other jobs that must end before the job starts.

use super::{JobSpec, validate::Errors};
use crate::id::JobId;
use crate::job::JobPhase;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Maximum number of jobs after which a job starts.
pub const MAX_AFTER: usize = 16;

/// `not_before` of a job that waits for other jobs: the year 9999, in Unix milliseconds.
pub const AFTER_JOBS_UNIX_MS: i64 = 253_370_764_800_000;

/// A job of the same tenant that must end first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct After {
    pub job: JobId,
    #[serde(default, skip_serializing_if = "AfterEnd::is_success")]
    pub on: AfterEnd,
}

/// The end that lets the waiting job start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum AfterEnd {
    /// The other job has succeeded. If it fails or is cancelled, the waiting job is cancelled.
    #[default]
    Success,
    /// The other job has ended in any way.
    End,
}

impl AfterEnd {
    fn is_success(&self) -> bool {
        *self == Self::Success
    }

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::End => "end",
        }
    }

    /// Whether an end in this phase lets the waiting job start.
    #[must_use]
    pub fn is_met_by(self, phase: JobPhase) -> bool {
        match self {
            Self::Success => phase == JobPhase::Succeeded,
            Self::End => phase.is_terminal(),
        }
    }
}

impl JobSpec {
    pub(super) fn check_after(&self, errors: &mut Errors) {
        errors.check(
            "after",
            &format!("{} jobs", self.after.len()),
            self.after.len() <= MAX_AFTER,
            "at most 16 jobs",
        );
        let mut seen = BTreeSet::new();
        for (at, after) in self.after.iter().enumerate() {
            errors.check(
                &format!("after[{at}].job"),
                &after.job,
                seen.insert(after.job),
                "each job once",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn condition_decides_which_ends_count() {
        for (phase, success, end) in [
            (JobPhase::Running, false, false),
            (JobPhase::Succeeded, true, true),
            (JobPhase::Failed, false, true),
            (JobPhase::Cancelled, false, true),
        ] {
            assert_eq!(AfterEnd::Success.is_met_by(phase), success, "{phase:?}");
            assert_eq!(AfterEnd::End.is_met_by(phase), end, "{phase:?}");
        }
    }

    #[test]
    fn repeated_and_too_many_jobs_are_refused() {
        let document = |after: &str| {
            let text = format!(
                r#"{{"version":"muster/v1","name":"x","command":{{"argv":["true"]}},"after":[{after}]}}"#
            );
            let spec: JobSpec = serde_json::from_str(&text).expect("a document");
            spec.validate().err().map(|errors| errors[0].field.clone())
        };
        let job = |number: u32| format!(r#"{{"job":"01890000-0000-7000-8000-{number:012}"}}"#);
        assert_eq!(document(&job(1)), None);
        let twice = format!("{},{}", job(1), job(1));
        assert_eq!(document(&twice).as_deref(), Some("after[1].job"));
        let many: Vec<String> = (0..17).map(job).collect();
        assert_eq!(document(&many.join(",")).as_deref(), Some("after"));
    }
}
