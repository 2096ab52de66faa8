//! Activity and own step time of each rank, from which stragglers and hangs are detected.
//!
//! Under BSP all ranks have the same step rate. A rank therefore reports its own time per step,
//! from the first example read to the last gradient computed. The time in which it waits for others
//! is not included.

use crate::id::TaskId;
use crate::idle::IdleFinding;
use serde::{Deserialize, Serialize};

/// Activity of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Doing {
    /// Computes its part of a step.
    Working,
    /// Waits for other ranks.
    Waiting,
    /// Loads, evaluates or writes a checkpoint, and the other ranks have to wait.
    Busy,
    /// Is suspended.
    Standing,
}

/// Report of a rank every few seconds, even if no step was done.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PaceReport {
    /// Steps done over the whole life of the job.
    pub step: u64,
    /// Mean own milliseconds per step since the last report. `None` if no step was done or the
    /// program does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_ms: Option<f64>,
    pub doing: Doing,
}

/// Pace of a rank from all of its reports.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pace {
    pub step: u64,
    /// From the newest report that contains a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_ms: Option<f64>,
    pub doing: Doing,
    /// Time of the newest report: Unix milliseconds of the process that keeps this record.
    pub heard_ms: i64,
    /// Time of the last change of `step`.
    pub moved_ms: i64,
    /// Number of reports.
    pub reports: u32,
    /// Longest time between two changes of `step`.
    #[serde(default)]
    pub longest_gap_ms: u64,
}

impl Pace {
    /// Returns the pace after one more report.
    #[must_use]
    pub fn after(before: Option<&Self>, report: &PaceReport, now_ms: i64) -> Self {
        let Some(before) = before else {
            return Self {
                step: report.step,
                own_ms: own(report),
                doing: report.doing,
                heard_ms: now_ms,
                moved_ms: now_ms,
                reports: 1,
                longest_gap_ms: 0,
            };
        };
        let has_moved = report.step != before.step;
        let gap_ms = u64::try_from(now_ms.saturating_sub(before.moved_ms)).unwrap_or(0);
        Self {
            step: report.step,
            own_ms: own(report).or(before.own_ms),
            doing: report.doing,
            heard_ms: now_ms.max(before.heard_ms),
            moved_ms: if has_moved { now_ms } else { before.moved_ms },
            reports: before.reports.saturating_add(1),
            longest_gap_ms: if has_moved {
                before.longest_gap_ms.max(gap_ms)
            } else {
                before.longest_gap_ms
            },
        }
    }
}

/// Drops values that cannot be a time.
fn own(report: &PaceReport) -> Option<f64> {
    report.own_ms.filter(|ms| ms.is_finite() && *ms > 0.0)
}

/// Settings and state of the straggler and hang detection of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watch {
    /// Time for which a rank may stay below half of the median rate; 0: unlimited.
    pub straggler_ms: u64,
    /// Time for which a rank may be silent or stuck while others wait for it; 0: unlimited.
    pub hang_ms: u64,
    /// Number of verdicts on this job; each doubles both times.
    #[serde(default)]
    pub verdicts: u32,
    /// Ranks that were suspected in the last round.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suspects: Vec<Suspect>,
    /// Whether the job restarts once it was idle for `hang_ms`; otherwise it is only flagged.
    #[serde(default, skip_serializing_if = "is_false")]
    pub restarts_idle: bool,
    /// Time without use after which an interactive job ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_limit_ms: Option<u64>,
    /// Idleness of the job that its owner has been told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<IdleFinding>,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// Rank that is suspected, and since when without interruption.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suspect {
    pub task_id: TaskId,
    pub of: Suspicion,
    pub since_ms: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Suspicion {
    Hang,
    Straggler,
}

/// A rank whose newest report is older than this, relative to the newest of all, has no rate.
const FRESH_MS: i64 = 20_000;

/// Returns the rate of each rank divided by the median rate, in the order of `paces`. `None` for a
/// rank without a step time or with an old report. All are `None` if fewer than two ranks have a
/// rate.
#[must_use]
pub fn of_median(paces: &[Pace]) -> Vec<Option<f64>> {
    let newest_ms = paces.iter().map(|pace| pace.heard_ms).max().unwrap_or(0);
    let rates: Vec<Option<f64>> = paces
        .iter()
        .map(|pace| {
            let is_fresh = newest_ms.saturating_sub(pace.heard_ms) < FRESH_MS;
            pace.own_ms
                .filter(|_| is_fresh)
                .map(|own_ms| 1_000.0 / own_ms)
        })
        .collect();
    let told: Vec<f64> = rates.iter().copied().flatten().collect();
    if told.len() < 2 {
        return vec![None; paces.len()];
    }
    let median = median(told);
    let parts = rates.into_iter().map(|rate| rate.map(|rate| rate / median));
    parts.collect()
}

/// Returns the median of at least one number: the midpoint of the two middle ones if their count is
/// even.
#[must_use]
pub fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_unstable_by(f64::total_cmp);
    let half = numbers.len() / 2;
    match numbers.len() % 2 {
        0 => f64::midpoint(numbers[half - 1], numbers[half]),
        _ => numbers[half],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(step: u64, own_ms: Option<f64>) -> PaceReport {
        let doing = Doing::Working;
        PaceReport {
            step,
            own_ms,
            doing,
        }
    }

    #[test]
    fn report_without_a_step_counts_as_sign_of_life_only() {
        let first = Pace::after(None, &report(5, Some(10.0)), 1_000);
        let moved = Pace::after(Some(&first), &report(9, Some(12.0)), 3_000);
        assert_eq!((moved.moved_ms, moved.longest_gap_ms), (3_000, 2_000));
        let still = Pace::after(Some(&moved), &report(9, None), 9_000);
        assert_eq!((still.heard_ms, still.moved_ms), (9_000, 3_000));
        assert_eq!((still.own_ms, still.longest_gap_ms), (Some(12.0), 2_000));
        assert_eq!(still.reports, 3);
    }

    fn pace(own_ms: Option<f64>, heard_ms: i64) -> Pace {
        Pace {
            heard_ms,
            ..Pace::after(None, &report(1, own_ms), 0)
        }
    }

    #[test]
    fn rates_are_relative_to_the_median_of_fresh_ranks() {
        let (now_ms, long_ago_ms) = (100_000, 70_000);
        let paces = [
            pace(Some(10.0), now_ms),
            pace(Some(10.0), now_ms - 5_000),
            pace(Some(25.0), now_ms),
            pace(None, now_ms),
            pace(Some(1.0), long_ago_ms),
        ];
        let parts = [Some(1.0), Some(1.0), Some(0.4), None, None];
        assert_eq!(of_median(&paces), parts);
        assert_eq!(of_median(&paces[..1]), [None], "beside nobody");
    }

    #[test]
    fn invalid_step_time_is_dropped() {
        let before = Pace::after(None, &report(1, Some(10.0)), 0);
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let after = Pace::after(Some(&before), &report(2, Some(wrong)), 1);
            assert_eq!(after.own_ms, Some(10.0), "{wrong}");
        }
    }
}
