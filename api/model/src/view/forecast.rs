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

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HitRate {
    /// Of jobs that have succeeded since.
    pub forecasts: u64,
    pub held: u64,
    /// Null while there are none.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub share: Option<f64>,
}
