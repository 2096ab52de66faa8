//! Response about the accuracy of forecasts.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// How often the intervals of forecasts were right.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AccuracyView {
    /// Start of the period; earlier forecasts do not count.
    #[serde(with = "time::serde::rfc3339")]
    pub since: OffsetDateTime,
    /// Share of intervals that should be right.
    pub target: f64,
    pub finish: HitRate,
    pub start: HitRate,
}

/// Forecasts of jobs that have succeeded since, without those marked as unsure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HitRate {
    pub forecasts: u64,
    /// Forecasts whose interval contained the actual time.
    pub held: u64,
    /// Jobs of these forecasts.
    #[serde(default)]
    pub jobs: u64,
    /// Share of the time in which the newest forecast of a job was right, as a mean over jobs: each
    /// job counts once. Null without jobs.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub share: Option<f64>,
}
