//! Metrics of a job.

use serde::{Deserialize, Serialize};

/// One metric that the job's program has logged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MetricView {
    /// Name as the program logs it.
    pub name: String,
    /// Step of the newest value.
    pub last_step: u64,
    /// The newest value.
    pub last: f64,
    pub min: f64,
    pub max: f64,
    /// Number of logged values.
    pub values: u64,
}

/// Series of one metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MetricSeriesView {
    pub name: String,
    /// Width of a bucket in steps, a power of two. It grows with the series. A point may cover more
    /// steps, because nodes merge values that come faster than they report.
    pub bucket_steps: u64,
    /// Ordered by step.
    pub points: Vec<MetricBucketView>,
}

/// Values of a metric within equally many steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MetricBucketView {
    /// Step of the newest value.
    pub step: u64,
    /// The newest value.
    pub last: f64,
    pub mean: f64,
    pub min: f64,
    pub max: f64,
    /// Number of logged values.
    pub values: u64,
}
