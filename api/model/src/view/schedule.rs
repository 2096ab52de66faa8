//! Schedules of a tenant.

use crate::id::JobId;
use crate::schedule::{ScheduleDocument, SchedulePause, ScheduleRun};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// Schedule of a tenant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ScheduleView {
    pub name: String,
    pub document: ScheduleDocument,
    /// User that stored it last; its jobs belong to this user.
    pub owner: String,
    /// Why it submits nothing; null if it is not paused.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub paused: Option<SchedulePause>,
    /// The next planned times, at most 5; empty while it is paused.
    pub next: Vec<PlannedTime>,
    /// Result of the newest planned time.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub last: Option<ScheduleRun>,
    /// The newest job, also of `run`. It may have been deleted.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub last_job: Option<JobId>,
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    pub updated_at: OffsetDateTime,
}

/// A time at which a schedule submits a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PlannedTime {
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// The same time in the time zone of the schedule, such as `2026-03-29 03:00 CEST`.
    pub local: String,
}
