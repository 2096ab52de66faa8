//! Requests and responses of planning questions.

use crate::forecast::{Interval, Unforeseen};
use crate::id::JobId;
use crate::spec::JobSpec;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// Effects of a job that was not submitted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PlanView {
    /// Time of the cluster state on which the forecast is based.
    #[serde(with = "time::serde::rfc3339")]
    pub made_at: OffsetDateTime,
    /// When it would start; null if it may never.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub start: Option<Interval>,
    /// When it would end; null if it may never, or if its end cannot be predicted.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub finish: Option<Interval>,
    /// Mean GPU-hours that it would hold over its life; 0 if `unforeseen` is given.
    pub gpu_hours: f64,
    /// Why its end cannot be predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unforeseen: Option<Unforeseen>,
    /// Jobs of the same tenant that would be stopped for it, or end at least half a minute earlier
    /// or later; at most 100.
    pub own_jobs: Vec<ShiftedJob>,
    /// The same for jobs of other tenants, without names.
    pub other_jobs: ShiftedJobs,
}

/// A job whose expected times a change would shift.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ShiftedJob {
    pub id: JobId,
    pub name: String,
    /// Seconds by which its expected end would be later; earlier if negative. Null if one of the
    /// two ends cannot be predicted.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub later_s: Option<f64>,
    /// Whether it would be stopped for other jobs. A program without a known checkpoint would start
    /// from the beginning.
    pub displaced: bool,
}

/// Number of jobs that a change would affect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ShiftedJobs {
    /// Stopped for other jobs.
    pub displaced: u32,
    /// Ending at least half a minute later.
    pub later: u32,
    /// Ending at least half a minute earlier.
    pub earlier: u32,
}

/// Assumed changes, which apply together; at most 32 of each kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WhatIf {
    /// Additional nodes like the largest present one.
    #[serde(default)]
    pub add_nodes: Vec<AddedNodes>,
    #[serde(default)]
    pub quotas: Vec<ImaginedQuota>,
    #[serde(default)]
    pub jobs: Vec<ImaginedJob>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AddedNodes {
    /// 1 to 10,000.
    pub nodes: u32,
    /// GPUs of each node; 1 to 64.
    pub gpus: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ImaginedQuota {
    /// Name of the tenant.
    pub tenant: String,
    /// Null removes the limit. The field is required.
    #[serde(deserialize_with = "Option::deserialize")]
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub gpu_quota: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ImaginedJob {
    /// Tenant that would submit the job. Default: that of the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The job document.
    pub job: JobSpec,
}

/// Effects of changes, compared with the forecast without them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WhatIfView {
    /// Time of the cluster state on which the forecasts are based.
    #[serde(with = "time::serde::rfc3339")]
    pub made_at: OffsetDateTime,
    /// Tenants with jobs whose end can be predicted in both cases.
    pub tenants: Vec<TenantShift>,
    /// Jobs that are added, displaced, or shifted by at least half a minute; at most 500. Added
    /// jobs come first, then by the size of the shift.
    pub jobs: Vec<JobShift>,
}

/// Means over a tenant's jobs, in seconds since their submission.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TenantShift {
    pub tenant: String,
    pub jobs: u32,
    /// Until the first start; null if all of its jobs have started.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub wait_s: Option<Shift>,
    /// Until the end.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub jct_s: Option<Shift>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Shift {
    pub before: f64,
    pub after: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct JobShift {
    /// Null for an assumed job.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub id: Option<JobId>,
    pub name: String,
    pub tenant: String,
    /// When it would start; null if it has started, or may never.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub start: Option<Interval>,
    /// When it would end; null if it may never, or if its end cannot be predicted.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub finish: Option<Interval>,
    /// Mean GPU-hours that it would still hold; 0 if `unforeseen` is given.
    pub gpu_hours: f64,
    /// Why its end cannot be predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unforeseen: Option<Unforeseen>,
    /// Seconds by which its expected end would be later; earlier if negative. Null if one of the
    /// two ends cannot be predicted.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub later_s: Option<f64>,
    /// Whether it would be stopped for other jobs. A program without a known checkpoint would start
    /// from the beginning.
    pub displaced: bool,
}
