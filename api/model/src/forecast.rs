//! When a job is expected to start and to end.

use serde::{Deserialize, Serialize};
use std::fmt;
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
    /// When it ends; null when it may never, or nobody can tell.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub finish: Option<Interval>,
    /// GPU-seconds that it will still hold, in the mean; 0 where `unforeseen` says why nobody can tell.
    pub gpu_s: f64,
    /// Why nobody can tell when it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unforeseen: Option<Unforeseen>,
}

/// Why nobody can tell when a job ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Unforeseen {
    /// Its document names no number of steps, its losses do not tell yet, and no job like it has succeeded.
    NoLength,
    /// It has run longer than all jobs like it.
    Outlived,
    /// It waits for jobs of which nobody can tell when they end.
    BehindOthers,
    /// Told by a newer release.
    #[serde(other)]
    Other,
}

impl Unforeseen {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoLength => "no_length",
            Self::Outlived => "outlived",
            Self::BehindOthers => "behind_others",
            Self::Other => "other",
        }
    }

    /// What [`as_str`](Self::as_str) gave.
    #[must_use]
    pub fn from_name(name: &str) -> Self {
        let known = [Self::NoLength, Self::Outlived, Self::BehindOthers];
        let found = known.into_iter().find(|one| one.as_str() == name);
        found.unwrap_or(Self::Other)
    }
}

impl fmt::Display for Unforeseen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoLength => "nothing says how long it is, and no job like it has succeeded yet",
            Self::Outlived => "it has run longer than jobs like it did",
            Self::BehindOthers => "it depends on jobs of which nothing says how long they are",
            Self::Other => "this release does not know why",
        })
    }
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
