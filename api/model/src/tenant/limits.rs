//! Limits of a tenant: open work of its users, and stored data per job.

use crate::spec::FieldError;
use serde::{Deserialize, Deserializer, Serialize};

/// Largest value of a limit: 2^53. The store (signed 64 bits) and JSON clients that read numbers as
/// doubles represent it exactly.
pub const MAX_LIMIT: u64 = 1 << 53;

macro_rules! limits {
    ($($(#[doc = $doc:literal])+ $name:ident = $default:expr;)+) => {
        /// Limits of a tenant.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
        pub struct TenantLimits {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        /// Limits that an administrator has set; the others have their defaults.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct LimitsSet {
            $(#[serde(skip_serializing_if = "Option::is_none")] pub $name: Option<u64>,)+
        }

        /// Change of limits. A field that is left out stays; null restores the default.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
        pub struct LimitsChange {
            $(
                $(#[doc = $doc])+
                #[serde(default, deserialize_with = "written", skip_serializing_if = "Option::is_none")]
                #[cfg_attr(feature = "schema", schema(value_type = Option<u64>))]
                pub $name: Option<Option<u64>>,
            )+
        }

        impl TenantLimits {
            pub const DEFAULT: Self = Self { $($name: $default,)+ };

            /// Returns the limits with their names.
            #[must_use]
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)+]
            }
        }

        impl From<TenantLimits> for LimitsSet {
            fn from(limits: TenantLimits) -> Self {
                Self { $($name: Some(limits.$name),)+ }
            }
        }

        impl LimitsSet {
            /// Returns the effective limits.
            #[must_use]
            pub fn or_default(&self) -> TenantLimits {
                TenantLimits { $($name: self.$name.unwrap_or(TenantLimits::DEFAULT.$name),)+ }
            }
        }

        impl LimitsChange {
            /// Whether the change is empty.
            #[must_use]
            pub fn is_nothing(&self) -> bool {
                *self == Self::default()
            }

            #[must_use]
            pub fn of(&self, set: LimitsSet) -> LimitsSet {
                LimitsSet { $($name: self.$name.unwrap_or(set.$name),)+ }
            }

            /// # Errors
            /// Each value above [`MAX_LIMIT`].
            pub fn validate(&self, field: &str) -> Result<(), Vec<FieldError>> {
                let values = [$((stringify!($name), self.$name.flatten()),)+];
                let wrong: Vec<FieldError> = values
                    .into_iter()
                    .filter_map(|(name, value)| Some((name, value.filter(|value| *value > MAX_LIMIT)?)))
                    .map(|(name, value)| FieldError {
                        field: format!("{field}.{name}"),
                        value: value.to_string(),
                        expected: format!("0 to {MAX_LIMIT}, or null for the default"),
                    })
                    .collect();
                if wrong.is_empty() { Ok(()) } else { Err(wrong) }
            }
        }
    };
}

limits! {
    /// Maximum number of jobs that have not ended, including trials of studies. The default is the
    /// load with which the scheduler is measured.
    open_jobs = 50_000;
    /// Maximum bytes of the documents of these jobs, as JSON. The default is about 5 KiB per job.
    open_job_bytes = 256 << 20;
    /// Maximum number of studies that have not finished.
    open_studies = 200;
    /// Maximum number of tokens that are neither revoked nor expired.
    tokens = 1_000;
    /// Maximum number of such tokens of one user.
    user_tokens = 100;
    /// Maximum bytes of stored code archives. Unused ones are removed.
    code_bytes = 10 << 30;
    /// Maximum bytes of the artifacts of all jobs.
    artifact_bytes = 1 << 40;
    /// Maximum number of artifacts of one job.
    job_artifacts = 10_000;
    /// Maximum bytes of the artifacts of one job.
    job_artifact_bytes = 100 << 30;
    /// Maximum number of stored secrets.
    secrets = 1_000;
    /// Maximum number of schedules.
    schedules = 100;
    /// Maximum number of stored templates.
    templates = 200;
    /// Maximum number of GPUs and CPU slots of interactive jobs that have not ended. The default
    /// limits nothing in practice.
    interactive_gpus = 1_000_000;
    /// Maximum number of events that the tasks of one job report, including evaluations. Later ones
    /// are dropped.
    job_events = 100_000;
    /// Maximum bytes of these events.
    job_event_bytes = 64 << 20;
    /// Maximum number of points in the series of one job; above it only the newest sample is kept.
    /// The default is three weeks at one sample per second.
    job_points = 2_000_000;
    /// Maximum number of listed checkpoints of one job. The oldest are removed from the list,
    /// pruned ones first.
    job_checkpoints = 10_000;
    /// Maximum bytes of stored output of the tasks of one job; above it the oldest output is
    /// removed.
    job_log_bytes = 256 << 20;
}

/// Current use of the limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LimitsUse {
    pub open_jobs: u64,
    pub open_job_bytes: u64,
    pub open_studies: u64,
    pub tokens: u64,
}

impl Default for TenantLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Without this function, serde reads null as a missing field.
fn written<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_keeps_what_is_left_out_and_null_is_the_default() {
        let set = LimitsSet {
            open_jobs: Some(5),
            tokens: Some(7),
            ..LimitsSet::default()
        };
        let change: LimitsChange =
            serde_json::from_str(r#"{"open_jobs":null,"open_studies":3}"#).expect("a change");
        let limits = change.of(set).or_default();
        assert_eq!(limits.open_jobs, TenantLimits::DEFAULT.open_jobs);
        assert_eq!((limits.tokens, limits.open_studies), (7, 3));
    }

    #[test]
    fn limit_above_the_store_is_refused_by_name() {
        let change = LimitsChange {
            tokens: Some(Some(MAX_LIMIT + 1)),
            ..LimitsChange::default()
        };
        let wrong = change.validate("limits").expect_err("too much");
        assert_eq!(wrong[0].field, "limits.tokens");
    }
}
