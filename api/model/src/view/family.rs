//! Responses about families of jobs.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// What is known of the speeds of a family of jobs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FamilyView {
    /// Key of the family.
    pub family: String,
    /// Short description, from the document of the newest job. Several families may share it.
    pub title: String,
    /// Number of jobs with measurements.
    pub jobs: u64,
    /// Speeds by GPU kind and placement, ordered by kind and size.
    pub speeds: Vec<FamilySpeedView>,
}

/// Mean speed of a family on one GPU kind and placement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FamilySpeedView {
    /// Model of the GPUs, as the driver names it.
    pub gpu_kind: String,
    pub workers: u32,
    pub ps_shards: u32,
    /// Number of nodes on which the workers were.
    pub nodes: u32,
    /// Steps per second; updates if the batch grows with the workers.
    pub steps_per_s: f64,
    /// Number of jobs in the mean.
    pub jobs: u64,
    /// Number of samples, however old.
    pub samples: u64,
    /// Weight in samples; it halves in seven days.
    pub weight: f64,
    /// Time of the newest sample.
    #[serde(with = "time::serde::rfc3339")]
    pub observed_at: OffsetDateTime,
}
