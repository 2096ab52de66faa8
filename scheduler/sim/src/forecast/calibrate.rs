//! Intervals that hold as often as they say: what forecasts of the past missed by widens those of today (split conformal prediction;
//! Romano, Patterson and Candès, NeurIPS 2019, scaled by each interval's own width).

use super::Interval;

/// The share of cases that an interval is to hold.
pub const TARGET: f64 = 0.8;
/// Fewer scores than this say too little.
pub const LEAST_SCORES: usize = 20;
/// Added to times from now, so that what is due at once has a logarithm.
pub(super) const OFFSET_S: f64 = 5.0;
/// Added to each half-width (in the logarithm of time) before it is widened: what every forecast misses, however sure it seems. Without it
/// whoever seemed certain and was off by a tenth would widen those that are unsure anyway to nothing worth telling.
const FLOOR: f64 = 0.1;
/// Half-widths that have come to nothing by rounding to milliseconds.
const LEAST: f64 = 1e-3;
/// No widening beyond: the forecast is then worthless anyway, and the interval should still be a date.
const WIDEN_RANGE: (f64, f64) = (0.1, 12.0);

/// By how many half-widths of its own side an interval, as it was before widening, missed what came; up to 1 it held.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Score(pub f64);

impl Score {
    /// `interval` was made at `made_ms` and widened by `widen`.
    #[must_use]
    pub fn of(interval: Interval, made_ms: i64, widen: f64, actual_ms: i64) -> Self {
        let (lower, upper) = half_widths(interval, made_ms);
        let off = (from_now_s(actual_ms, made_ms) / from_now_s(interval.p50_ms, made_ms)).ln();
        let spread = if off < 0.0 { lower } else { upper };
        Self(off.abs() / spread.max(LEAST) * widen)
    }
}

/// The factor by which new intervals are to be widened (or narrowed), so that of those scored [`TARGET`] would have held; 1 while too
/// few are known.
#[must_use]
pub fn widening(scores: &[Score]) -> f64 {
    if scores.len() < LEAST_SCORES {
        return 1.0;
    }
    let mut sorted: Vec<f64> = scores.iter().map(|score| score.0).collect();
    sorted.sort_by(f64::total_cmp);
    // The finite-sample rank of conformal prediction.
    let rank = ((sorted.len() + 1) as f64 * TARGET).ceil() as usize;
    let (least, most) = WIDEN_RANGE;
    sorted[rank.clamp(1, sorted.len()) - 1].clamp(least, most)
}

/// The share of intervals that held; `None` of none.
#[must_use]
pub fn hits(outcomes: &[bool]) -> Option<f64> {
    let held = outcomes.iter().filter(|held| **held).count();
    (!outcomes.is_empty()).then(|| held as f64 / outcomes.len() as f64)
}

/// Half-widths towards earlier and towards later, as they are to be widened.
pub(super) fn spreads(interval: Interval, now_ms: i64) -> (f64, f64) {
    let (lower, upper) = half_widths(interval, now_ms);
    (lower + FLOOR, upper + FLOOR)
}

fn half_widths(interval: Interval, now_ms: i64) -> (f64, f64) {
    let at = |time_ms: i64| from_now_s(time_ms, now_ms).ln();
    let middle = at(interval.p50_ms);
    (
        (middle - at(interval.p10_ms)).max(0.0),
        (at(interval.p90_ms) - middle).max(0.0),
    )
}

pub(super) fn from_now_s(time_ms: i64, now_ms: i64) -> f64 {
    (time_ms.saturating_sub(now_ms).max(0)) as f64 / 1000.0 + OFFSET_S
}

#[cfg(test)]
mod tests {
    use super::{LEAST_SCORES, Score, widening};
    use crate::forecast::Interval;

    #[test]
    fn a_widened_interval_scores_as_it_did_before_it_was_widened() {
        let interval = Interval {
            p10_ms: 80_000,
            p50_ms: 100_000,
            p90_ms: 150_000,
        };
        let wide = interval.widened(0, 2.5);
        assert!(wide.p10_ms < 80_000 && wide.p90_ms > 150_000);
        let plain = interval.widened(0, 1.0);
        for actual_ms in [40_000, 100_000, 170_000, 400_000] {
            let (plain, widened) = (
                Score::of(plain, 0, 1.0, actual_ms).0,
                Score::of(wide, 0, 2.5, actual_ms).0,
            );
            assert!((plain - widened).abs() < 1e-3, "{plain} {widened}");
            assert_eq!(wide.holds(actual_ms), plain <= 2.5, "{actual_ms}");
        }
    }

    /// A few minutes that were told to the second and came a quarter later do not make a day of an hour that nobody was sure of.
    #[test]
    fn what_seemed_certain_and_was_not_leaves_others_worth_telling() {
        let certain = Interval {
            p10_ms: 299_000,
            p50_ms: 300_000,
            p90_ms: 301_000,
        };
        let told = certain.widened(0, 1.0);
        let scores = vec![Score::of(told, 0, 1.0, 375_000); LEAST_SCORES];
        let unsure = Interval {
            p10_ms: 1_800_000,
            p50_ms: 3_600_000,
            p90_ms: 7_200_000,
        };
        let wide = unsure.widened(0, widening(&scores));
        assert!(wide.p90_ms < 6 * 3_600_000, "{wide:?}");
    }

    #[test]
    fn the_widening_is_the_quantile_that_would_have_held() {
        let scores: Vec<Score> = (1..=99).map(|n| Score(f64::from(n) / 10.0)).collect();
        assert!((widening(&scores) - 8.0).abs() < 1e-9);
        assert!((widening(&scores[..10]) - 1.0).abs() < 1e-9, "too few");
    }
}
