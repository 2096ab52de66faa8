//! How good forecasts were, as answered.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// How often the intervals of forecasts held.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AccuracyView {
    /// Forecasts made since then.
    #[serde(with = "time::serde::rfc3339")]
    pub since: OffsetDateTime,
    /// The share that is to hold.
    pub target: f64,
    pub finish: HitRate,
    pub start: HitRate,
}

/// Forecasts of jobs that have succeeded since, but for those that are unsure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HitRate {
    pub forecasts: u64,
    /// Forecasts whose interval held.
    pub held: u64,
    /// Jobs of these forecasts.
    #[serde(default)]
    pub jobs: u64,
    /// How often a look at a job shows an interval that holds: of each job the share of the time in which the newest forecast held, and of
    /// the jobs the mean, so that each counts once. Null while there are none.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub share: Option<f64>,
}
