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
    /// How the job's program is asked for a checkpoint before a stop that the scheduler decides,
    /// or a pause. Without it, the program is not asked. Only with `command`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_on_request: Option<CheckpointOnRequest>,
}

/// How a program is asked for a checkpoint before it is stopped. It answers by the report of a
/// checkpoint. Each process finds the request at `GET /muster/v1/stopping` and in the file
/// `MUSTER_CHECKPOINT_REQUEST`, in addition to the signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CheckpointOnRequest {
    /// Signal to the process of each task. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<RequestSignal>,
    /// Maximum seconds from the request to the report, after which the job is stopped without
    /// one; 1 to 3600.
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 3600))]
    pub timeout_s: u32,
}

impl Default for CheckpointOnRequest {
    fn default() -> Self {
        Self {
            signal: None,
            timeout_s: 60,
        }
    }
}

impl CheckpointOnRequest {
    /// Milliseconds from the request to the stop of a program that does not answer.
    #[must_use]
    pub fn timeout_ms(&self) -> u64 {
        u64::from(self.timeout_s) * 1_000
    }
}

/// Signal that asks a program for a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum RequestSignal {
    #[serde(rename = "USR1")]
    Usr1,
    #[serde(rename = "USR2")]
    Usr2,
    #[serde(rename = "HUP")]
    Hup,
}

impl RequestSignal {
    /// Name without `SIG`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Usr1 => "USR1",
            Self::Usr2 => "USR2",
            Self::Hup => "HUP",
        }
    }
}

/// How a job may make room for another job, strictest value first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
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

impl AllowedPreemption {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Suspend => "suspend",
            Self::Restart => "restart",
        }
    }
}

/// Longest `min_runtime`: a week.
pub const LONGEST_MIN_RUNTIME_S: u32 = 604_800;
/// Longest `grace_s`, the longest grace of a cluster.
pub const LONGEST_GRACE_S: u32 = 600;
/// Longest `timeout_s`: an hour.
pub const LONGEST_TIMEOUT_S: u32 = 3_600;

impl JobSpec {
    /// Whether the job can be suspended for other jobs.
    #[must_use]
    pub fn may_be_suspended(&self) -> bool {
        self.suspends() && !self.exclusive && !self.pod.needs_pods()
    }
}

impl Preemption {
    /// Whether this is the value of a document without the section.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn check(&self, errors: &mut Errors, spec: &JobSpec) {
        errors.check(
            "preemption.allowed",
            &"suspend",
            self.allowed != AllowedPreemption::Suspend || spec.may_be_suspended(),
            "never or restart: this job cannot be suspended, because it is exclusive, its tasks are pods, it uses no GPUs, or its workers do not wait for each other in every step",
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
        if let Some(request) = self.checkpoint_on_request {
            errors.check(
                "preemption.checkpoint_on_request.timeout_s",
                &request.timeout_s,
                (1..=LONGEST_TIMEOUT_S).contains(&request.timeout_s),
                "1 to 3600 seconds",
            );
            errors.check(
                "preemption.checkpoint_on_request",
                &"set",
                spec.command.is_some(),
                "no value without command: the engine writes a checkpoint at every stop in order",
            );
        }
    }
}

fn is_zero(seconds: &u32) -> bool {
    *seconds == 0
}
