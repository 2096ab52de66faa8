//! Schedules: job documents that are submitted at the times of a cron expression.

use crate::id::JobId;
use crate::spec::JobSpec;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// Label of the jobs of a schedule; its value is the name of the schedule.
pub const SCHEDULE_LABEL: &str = "schedule";

/// A schedule as users write it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ScheduleDocument {
    /// Minute, hour, day of the month, month and day of the week, such as `0 3 * * mon-fri`; or
    /// `@hourly`, `@daily`, `@weekly`, `@monthly` or `@yearly`.
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 200))]
    pub cron: String,
    /// IANA name of a time zone, such as `Europe/Berlin`.
    #[serde(default = "utc")]
    #[cfg_attr(feature = "schema", schema(max_length = 64))]
    pub time_zone: String,
    #[serde(default)]
    pub catch_up: CatchUp,
    #[serde(default)]
    pub overlap: Overlap,
    /// Document of each job.
    pub job: JobSpec,
}

fn utc() -> String {
    "UTC".to_owned()
}

/// Rule for planned times at which no API server ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum CatchUp {
    /// Missed times are skipped.
    #[default]
    None,
    /// One job is submitted for the newest missed time.
    Latest,
}

/// Rule for planned times at which the last job has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Overlap {
    /// A job is submitted.
    #[default]
    Allow,
    /// The planned time is skipped.
    Skip,
}

/// Why a schedule submits nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum SchedulePause {
    /// A user paused it.
    ByUser,
    /// Its owner has no valid token any more.
    OwnerWithoutToken,
}

/// A change of a schedule, for the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum ScheduleChange {
    Stored,
    Paused,
    Resumed,
    Deleted,
}

/// Result of a planned time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ScheduleRun {
    /// The planned time.
    #[serde(with = "time::serde::rfc3339")]
    pub planned_at: OffsetDateTime,
    /// When the API server came to it.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    pub result: ScheduleResult,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum ScheduleResult {
    Submitted {
        job: JobId,
    },
    /// A rule of the schedule left the time out.
    Skipped {
        reason: String,
    },
    /// The submission was refused, as `POST /jobs` would refuse it.
    Refused {
        reason: String,
    },
}

impl CatchUp {
    pub const ALL: [Self; 2] = [Self::None, Self::Latest];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Latest => "latest",
        }
    }

    /// Returns the rule of this name; `None` for an unknown one.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.as_str() == name)
    }
}

impl Overlap {
    pub const ALL: [Self; 2] = [Self::Allow, Self::Skip];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Skip => "skip",
        }
    }

    /// Returns the rule of this name; `None` for an unknown one.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.as_str() == name)
    }
}

impl ScheduleChange {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::Paused => "paused",
            Self::Resumed => "resumed",
            Self::Deleted => "deleted",
        }
    }
}

impl SchedulePause {
    pub const ALL: [Self; 2] = [Self::ByUser, Self::OwnerWithoutToken];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ByUser => "by_user",
            Self::OwnerWithoutToken => "owner_without_token",
        }
    }

    /// Returns the reason of this name; `None` for an unknown one.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|pause| pause.as_str() == name)
    }
}
