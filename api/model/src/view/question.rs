//! What would come of a change, as asked and answered.

use crate::forecast::{Interval, Unforeseen};
use crate::id::JobId;
use crate::spec::JobSpec;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// What would come of a job that was not submitted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PlanView {
    /// The instant of the cluster's state from which was looked ahead.
    #[serde(with = "time::serde::rfc3339")]
    pub made_at: OffsetDateTime,
    /// When it would start; null when it may never.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub start: Option<Interval>,
    /// When it would end; null when it may never, or nobody can tell.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub finish: Option<Interval>,
    /// What it would hold over its life, in the mean; 0 where `unforeseen` says why nobody can tell.
    pub gpu_hours: f64,
    /// Why nobody can tell when it would end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unforeseen: Option<Unforeseen>,
    /// Jobs of the same tenant that would be stopped for it, or end half a minute or more earlier or later; at most 100.
    pub own_jobs: Vec<ShiftedJob>,
    /// The same of the other tenants' jobs, whose names are theirs.
    pub other_jobs: ShiftedJobs,
}

/// A job that a change would move.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ShiftedJob {
    pub id: JobId,
    pub name: String,
    /// Seconds by which its expected end comes later, or earlier if negative; null when there is none in one of the cases, or nobody can tell.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub later_s: Option<f64>,
    /// It would be stopped for the sake of others. A program of which nobody has seen a checkpoint then begins anew.
    pub displaced: bool,
}

/// How many jobs a change would move.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ShiftedJobs {
    /// Stopped for the sake of others.
    pub displaced: u32,
    /// Ending half a minute or more later.
    pub later: u32,
    /// Ending half a minute or more earlier.
    pub earlier: u32,
}

/// Changes that are imagined, together; at most 32 of each kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WhatIf {
    /// Nodes like the largest one there is.
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
    /// Of each; 1 to 64.
    pub gpus: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ImaginedQuota {
    /// The tenant's name.
    pub tenant: String,
    /// Null lifts the limit; it must be written, so that a forgotten field does not.
    #[serde(deserialize_with = "Option::deserialize")]
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub gpu_quota: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ImaginedJob {
    /// The tenant that would submit it; that of the token when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The job document.
    pub job: JobSpec,
}

/// What would come of changes, beside what is to be expected without them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WhatIfView {
    /// The instant of the cluster's state from which was looked ahead.
    #[serde(with = "time::serde::rfc3339")]
    pub made_at: OffsetDateTime,
    /// Those with jobs whose end is foreseen in both cases.
    pub tenants: Vec<TenantShift>,
    /// Those that are added, displaced, or moved by half a minute or more; at most 500, the added ones first, then by how far.
    pub jobs: Vec<JobShift>,
}

/// Means over a tenant's jobs, seconds since submission.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TenantShift {
    pub tenant: String,
    pub jobs: u32,
    /// Until the first start; null when none of its jobs has yet to start.
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
    /// Null for a job that is imagined.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub id: Option<JobId>,
    pub name: String,
    pub tenant: String,
    /// When it would start, if it has not; null when it has, or may never.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub start: Option<Interval>,
    /// When it would end; null when it may never, or nobody can tell.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub finish: Option<Interval>,
    /// What it would still hold, in the mean; 0 where `unforeseen` says why nobody can tell.
    pub gpu_hours: f64,
    /// Why nobody can tell when it would end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unforeseen: Option<Unforeseen>,
    /// Seconds by which its expected end comes later, or earlier if negative; null when there is none in one of the cases, or nobody can tell.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub later_s: Option<f64>,
    /// It would be stopped for the sake of others. A program of which nobody has seen a checkpoint then begins anew.
    pub displaced: bool,
}
