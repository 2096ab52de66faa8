//! Forecasts of the start and the end of a job.

use serde::{Deserialize, Serialize};
use std::fmt;
use time::OffsetDateTime;

/// Forecast of a job at one time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Forecast {
    #[serde(with = "time::serde::rfc3339")]
    pub made_at: OffsetDateTime,
    /// First start of the job; null if it has started before, or may never start.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub start: Option<Interval>,
    /// End of the job; null if it may never end, or its end cannot be predicted.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub finish: Option<Interval>,
    /// Mean GPU-seconds that the job will still hold; 0 if `unforeseen` is given.
    pub gpu_s: f64,
    /// Why the end of the job cannot be predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unforeseen: Option<Unforeseen>,
}

/// Why the end of a job cannot be predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Unforeseen {
    /// The document contains no number of steps, the losses do not suffice for an estimate, and no
    /// similar job has succeeded.
    NoLength,
    /// The job has run longer than all similar jobs.
    Outlived,
    /// The job waits for jobs whose end cannot be predicted.
    BehindOthers,
    /// Reason of a newer release.
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

    /// Parses the result of [`as_str`](Self::as_str). An unknown name is `Other`.
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

/// Interval of a predicted time. It falls between `p10` and `p90` in eight of ten cases, and before
/// `p50` in half of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Interval {
    #[serde(with = "time::serde::rfc3339")]
    pub p10: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    pub p50: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    pub p90: OffsetDateTime,
    /// Whether the interval is too wide to be useful: `p90` is more than ten times as far away as
    /// `p10`, with five seconds added to both. Show only `p50`, as a guess.
    #[serde(default)]
    pub unsure: bool,
}

impl Interval {
    /// Largest ratio of the times until `p90` and `p10` at which an interval is shown.
    pub const WIDEST: f64 = 10.0;
    /// Seconds that are added to both times before they are compared, so that a few seconds do not
    /// matter.
    pub const OFFSET_S: f64 = 5.0;

    /// Returns the interval with `unsure` as of `now`.
    #[must_use]
    pub fn of(
        (p10, p50, p90): (OffsetDateTime, OffsetDateTime, OffsetDateTime),
        now: OffsetDateTime,
    ) -> Self {
        Self {
            p10,
            p50,
            p90,
            unsure: Self::offset_time_left_s(p90, now)
                > Self::offset_time_left_s(p10, now) * Self::WIDEST,
        }
    }

    /// Returns the time until `at` plus `OFFSET_S`, in seconds. A past time counts as `now`.
    fn offset_time_left_s(at: OffsetDateTime, now: OffsetDateTime) -> f64 {
        (at - now).as_seconds_f64().max(0.0) + Self::OFFSET_S
    }

    /// Returns the interval with `unsure` as of `now`. An interval never becomes sure again.
    #[must_use]
    pub fn seen_at(self, now: OffsetDateTime) -> Self {
        let seen = Self::of((self.p10, self.p50, self.p90), now);
        Self {
            unsure: self.unsure || seen.unsure,
            ..seen
        }
    }
}

impl Forecast {
    /// Returns the forecast with its intervals as of `now`.
    #[must_use]
    pub fn seen_at(self, now: OffsetDateTime) -> Self {
        Self {
            start: self.start.map(|start| start.seen_at(now)),
            finish: self.finish.map(|finish| finish.seen_at(now)),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Interval;
    use time::macros::datetime;
    use time::{Duration, OffsetDateTime};

    const NOW: OffsetDateTime = datetime!(2026-01-01 0:00 UTC);

    fn at(s: i64) -> OffsetDateTime {
        NOW + Duration::seconds(s)
    }

    fn is_unsure(p10_s: i64, p90_s: i64) -> bool {
        Interval::of((at(p10_s), at(p90_s), at(p90_s)), NOW).unsure
    }

    #[test]
    fn interval_beyond_a_factor_of_ten_is_unsure() {
        assert!(!is_unsure(0, 45) && is_unsure(0, 46));
        assert!(!is_unsure(60, 600) && is_unsure(60, 700));
        assert!(is_unsure(-10, 46), "a past time counts as now");
    }

    #[test]
    fn interval_becomes_unsure_near_its_lower_end() {
        let made = Interval::of((at(60), at(200), at(500)), NOW);
        assert!(!made.unsure);
        assert!(made.seen_at(at(50)).unsure);
    }
}
