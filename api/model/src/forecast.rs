//! When a job is expected to start and to end.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// What was expected of a job at one instant.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Forecast {
    #[serde(with = "time::serde::rfc3339")]
    pub made_at: OffsetDateTime,
    /// When it first runs; null when it has run already, or may never.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub start: Option<Interval>,
    /// When it ends; null when it may never.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub finish: Option<Interval>,
    /// GPU-seconds that it will still hold, in the mean.
    pub gpu_s: f64,
}

/// In eight cases of ten it falls between `p10` and `p90`, in half of them before `p50`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Interval {
    #[serde(with = "time::serde::rfc3339")]
    pub p10: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    pub p50: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    pub p90: OffsetDateTime,
}
