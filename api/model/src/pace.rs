//! What each rank of a job does, and how fast it is by itself: what stragglers and hangs are told by.
//!
//! Under BSP all ranks have one step rate. So a rank tells its own time per step, from the first example read to the last gradient
//! computed, and not the time that it waited for others.

use crate::id::TaskId;
use serde::{Deserialize, Serialize};

/// What a rank does at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Doing {
    /// Its own part of a step.
    Working,
    /// It waits for the others.
    Waiting,
    /// What the others rightly wait for: it loads, evaluates or keeps a checkpoint.
    Busy,
    /// It stands still, as it was told.
    Standing,
}

/// What a rank tells every few seconds, whether a step was done or not.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PaceReport {
    /// Steps done, over the job's whole life.
    pub step: u64,
    /// Mean own milliseconds of a step since the report before; `None` when none was done, or a program does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_ms: Option<f64>,
    pub doing: Doing,
}

/// What is known of a rank's pace by all that it has told.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pace {
    pub step: u64,
    /// Of the newest report with a step in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_ms: Option<f64>,
    pub doing: Doing,
    /// When it was heard last, Unix time of whoever keeps it.
    pub heard_ms: i64,
    /// When its step last changed.
    pub moved_ms: i64,
    /// Reports so far.
    pub reports: u32,
    /// The longest time between two changes of its step.
    #[serde(default)]
    pub longest_gap_ms: u64,
}

impl Pace {
    /// What is known after one more report.
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
            longest_gap_ms: match has_moved {
                true => before.longest_gap_ms.max(gap_ms),
                false => before.longest_gap_ms,
            },
        }
    }
}

/// Nothing is told by a time that cannot be one.
fn own(report: &PaceReport) -> Option<f64> {
    report.own_ms.filter(|ms| ms.is_finite() && *ms > 0.0)
}

/// How a job's ranks are watched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watch {
    /// So long a rank may stay under half of the median rate; 0: for ever.
    pub straggler_ms: u64,
    /// So long a rank may be silent or stuck while others wait for it; 0: for ever.
    pub hang_ms: u64,
    /// Verdicts on this job so far: each doubles both times.
    #[serde(default)]
    pub verdicts: u32,
    /// Ranks that looked so in the round before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suspects: Vec<Suspect>,
}

/// A rank that looks slow or hung, and since when it has without a break.
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

/// Who was not heard for longer than this, while others were, says nothing of how fast it is.
const FRESH_MS: i64 = 20_000;

/// Each rank's rate as a part of the median of all of them, in the order in which they are given; `None` of those who do not tell, of
/// all where fewer than two do, and of who was heard long before the others.
#[must_use]
pub fn of_median(paces: &[Pace]) -> Vec<Option<f64>> {
    let newest_ms = paces.iter().map(|pace| pace.heard_ms).max().unwrap_or(0);
    let rate = |pace: &Pace| {
        let is_fresh = newest_ms.saturating_sub(pace.heard_ms) < FRESH_MS;
        pace.own_ms
            .filter(|_| is_fresh)
            .map(|own_ms| 1_000.0 / own_ms)
    };
    let rates: Vec<Option<f64>> = paces.iter().map(rate).collect();
    let told: Vec<f64> = rates.iter().copied().flatten().collect();
    if told.len() < 2 {
        return vec![None; paces.len()];
    }
    let median = median(told);
    let parts = rates.into_iter().map(|rate| rate.map(|rate| rate / median));
    parts.collect()
}

/// Of at least one number; between the two in the middle where there are two.
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
    fn a_report_without_a_step_is_a_sign_of_life_and_no_more() {
        let first = Pace::after(None, &report(5, Some(10.0)), 1_000);
        let moved = Pace::after(Some(&first), &report(9, Some(12.0)), 3_000);
        assert_eq!((moved.moved_ms, moved.longest_gap_ms), (3_000, 2_000));
        let still = Pace::after(Some(&moved), &report(9, None), 9_000);
        assert_eq!((still.heard_ms, still.moved_ms), (9_000, 3_000));
        assert_eq!((still.own_ms, still.longest_gap_ms), (Some(12.0), 2_000));
        assert_eq!(still.reports, 3);
    }

    #[test]
    fn a_rank_at_half_of_the_others_rate_is_seen() {
        let pace = |own_ms: Option<f64>, heard_ms: i64| Pace {
            heard_ms,
            ..Pace::after(None, &report(1, own_ms), 0)
        };
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
    fn a_time_that_is_none_is_not_believed() {
        let before = Pace::after(None, &report(1, Some(10.0)), 0);
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let after = Pace::after(Some(&before), &report(2, Some(wrong)), 1);
            assert_eq!(after.own_ms, Some(10.0), "{wrong}");
        }
    }
}
