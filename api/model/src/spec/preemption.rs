//! The `preemption` part of the job document: whether and when the job makes room for other jobs.

use super::JobSpec;
use super::validate::Errors;
use serde::{Deserialize, Serialize};

/// Whether and when the job makes room for other jobs. Its owner's orders, a drained node and a
/// lowered quota stop it in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Preemption {
    pub allowed: AllowedPreemption,
    /// Seconds that the job runs after each start and each resumption before it makes room for
    /// another job; 0 to 604800.
    #[serde(skip_serializing_if = "is_zero")]
    #[cfg_attr(feature = "schema", schema(maximum = 604_800))]
    pub min_runtime: u32,
    /// Seconds from the request to stop until the job's processes are killed; 1 to 600. Default:
    /// the cluster's grace.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 600))]
    pub grace_s: Option<u32>,
}

/// How a job may make room for another job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum AllowedPreemption {
    /// Not at all: it is neither stopped, moved nor suspended for another job, and takes no time
    /// slices.
    Never,
    /// By time slices only.
    Suspend,
    /// By time slices, and by a stop from which it starts again.
    #[default]
    Restart,
}

/// Longest `min_runtime`: a week.
const LONGEST_MIN_RUNTIME_S: u32 = 604_800;
/// Longest `grace_s`, the longest grace of a cluster.
const LONGEST_GRACE_S: u32 = 600;

impl Preemption {
    /// Whether this is the value of a document without the section.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn check(&self, errors: &mut Errors, spec: &JobSpec) {
        let suspends = spec.suspends() && !spec.exclusive && spec.pod.is_empty();
        errors.check(
            "preemption.allowed",
            &"suspend",
            self.allowed != AllowedPreemption::Suspend || suspends,
            "never or restart: this job cannot be suspended, because it is exclusive, its tasks are pods, or its workers do not wait for each other in every step",
        );
        errors.check(
            "preemption.min_runtime",
            &self.min_runtime,
            self.min_runtime <= LONGEST_MIN_RUNTIME_S,
            "0 to 604800 seconds",
        );
        if let Some(grace_s) = self.grace_s {
            errors.check(
                "preemption.grace_s",
                &grace_s,
                (1..=LONGEST_GRACE_S).contains(&grace_s),
                "1 to 600 seconds",
            );
        }
    }
}

fn is_zero(seconds: &u32) -> bool {
    *seconds == 0
}
