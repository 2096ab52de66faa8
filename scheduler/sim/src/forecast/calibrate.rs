//! Calibration of intervals by the errors of earlier forecasts.
//!
//! The method is weighted conformal prediction (Barber, Candès, Ramdas and Tibshirani, Annals of
//! Statistics 2023). The 10 %, 50 % and 90 % quantiles of earlier scores replace those of the runs.
//! Each side has its own quantile, as in conformalized quantile regression (Romano, Patterson and
//! Candès, NeurIPS 2019). The weight of a score grows with the similarity of its forecast: same
//! basis, same state, same distance.

use super::ForecastInterval;
use serde::{Deserialize, Serialize};

/// Share of cases that an interval must contain.
pub const TARGET: f64 = 0.8;
/// Added to times from now, so that an immediate event has a logarithm.
const OFFSET_S: f64 = 5.0;
/// Minimum half-width in the logarithm of time. Without it a forecast with a tiny interval and a
/// small error would have a huge score, which would widen all other intervals.
const FLOOR: f64 = 0.1;
/// Number of prior scores, which stand for correct intervals of the runs.
const PRIOR_SCORES: usize = 10;
/// The 90 % quantile of the normal distribution, in standard deviations.
const TO_90: f64 = 1.2816;
/// Weight of a score with another basis or another state, relative to an equal one.
const OF_OTHERS: f64 = 0.05;
/// Factor in distance at which the weight of a score falls to 1/e.
const AHEAD: f64 = 2.0;

/// Source of a job's expected end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// The job's own steps and their measured speed.
    Measured,
    /// Steps and speed of earlier jobs of the document.
    Earlier,
    /// Durations of earlier jobs of the document.
    Lengths,
    /// The job's own steps and a prior speed.
    Guessed,
}

impl Basis {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Earlier => "earlier",
            Self::Lengths => "lengths",
            Self::Guessed => "guessed",
        }
    }

    /// Inverse of [`as_str`](Self::as_str); `None` for a name that a newer release wrote.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [Self::Measured, Self::Earlier, Self::Lengths, Self::Guessed];
        all.into_iter().find(|one| one.as_str() == name)
    }
}

/// Inputs of a forecast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForecastContext {
    pub basis: Basis,
    /// The job had not started.
    pub waits: bool,
}

/// Signed error of a forecast in half-widths of its side; negative if the event came earlier than
/// the median.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score {
    off: f64,
    /// Logarithm of the time to the median.
    ahead: f64,
    context: ForecastContext,
    weight: f64,
}

impl Score {
    /// `interval` is the result of the runs at `made_ms`, before calibration. `weight` is the
    /// forecast's share of the time in which a forecast of its job was shown.
    #[must_use]
    pub fn of(
        interval: ForecastInterval,
        made_ms: i64,
        context: ForecastContext,
        actual_ms: i64,
        weight: f64,
    ) -> Self {
        let (lower, upper) = half_widths(interval, made_ms);
        let ahead = ln_from_now(interval.p50_ms, made_ms);
        let off = ln_from_now(actual_ms, made_ms) - ahead;
        let half = if off < 0.0 { lower } else { upper };
        Self {
            off: off / half,
            ahead,
            context,
            weight,
        }
    }
}

/// Scores of earlier forecasts.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    /// Ordered by `off`.
    scores: Vec<Score>,
}

impl Calibration {
    /// Calibration without scores.
    #[must_use]
    pub const fn none() -> Self {
        Self { scores: Vec::new() }
    }

    #[must_use]
    pub fn of(mut scores: Vec<Score>) -> Self {
        scores.retain(|score| score.off.is_finite() && score.weight > 0.0);
        scores.sort_by(|a, b| a.off.total_cmp(&b.off));
        Self { scores }
    }

    /// Calibrated interval for the result `raw` of the runs at `now_ms`. Its quantiles are in
    /// order.
    #[must_use]
    pub fn apply(
        &self,
        raw: ForecastInterval,
        context: ForecastContext,
        now_ms: i64,
    ) -> ForecastInterval {
        let (lower, upper) = half_widths(raw, now_ms);
        let middle = ln_from_now(raw.p50_ms, now_ms);
        let weighed = self.weighed(context, middle);
        let outside = (1.0 - TARGET) / 2.0;
        let [p10_ms, p50_ms, p90_ms] = [outside, 0.5, 1.0 - outside].map(|share| {
            let off = quantile(&weighed, share);
            let half = if off < 0.0 { lower } else { upper };
            let seconds = (middle + off * half).exp() - OFFSET_S;
            now_ms.saturating_add((seconds.clamp(0.0, 1e10) * 1000.0) as i64)
        });
        ForecastInterval {
            p10_ms: p10_ms.min(p50_ms),
            p50_ms,
            p90_ms: p90_ms.max(p50_ms),
        }
    }

    /// Scores in order, with their weights for a forecast of this context.
    fn weighed(&self, context: ForecastContext, ahead: f64) -> Vec<(f64, f64)> {
        let weighed = self.scores.iter().map(|score| {
            let near = (-(score.ahead - ahead).abs() / AHEAD.ln()).exp();
            let like = likeness(score.context.basis == context.basis)
                * likeness(score.context.waits == context.waits);
            (score.off, score.weight * near * like)
        });
        let mut weighed: Vec<(f64, f64)> = weighed.collect();
        weighed.extend(prior());
        weighed.sort_by(|a, b| a.0.total_cmp(&b.0));
        weighed
    }
}

/// Weight of a score by one property of its context.
fn likeness(is_same: bool) -> f64 {
    if is_same { 1.0 } else { OF_OTHERS }
}

/// Scores of a normal distribution whose 80 % interval equals that of the runs.
fn prior() -> impl Iterator<Item = (f64, f64)> {
    let count = PRIOR_SCORES as f64;
    let shares = (0..PRIOR_SCORES).map(move |index| (index as f64 + 0.5) / count);
    shares.map(|share| (normal_quantile(share) / TO_90, 1.0))
}

/// Quantile of the standard normal distribution (Tukey's lambda approximation; its error is below
/// 0.01 between 2 % and 98 %).
fn normal_quantile(share: f64) -> f64 {
    const LAMBDA: f64 = 0.1349;
    (share.powf(LAMBDA) - (1.0 - share).powf(LAMBDA)) / 0.1975
}

/// Weighted quantile of ordered scores, linear between neighbours.
fn quantile(weighed: &[(f64, f64)], share: f64) -> f64 {
    let whole: f64 = weighed.iter().map(|(_, weight)| weight).sum();
    let mut below = 0.0;
    let mut before: Option<(f64, f64)> = None;
    for &(off, weight) in weighed {
        // Half of a score's own weight is below it.
        let at = (below + weight / 2.0) / whole;
        if at >= share {
            return before.map_or(off, |(at_before, off_before)| {
                let part = (share - at_before) / (at - at_before).max(f64::MIN_POSITIVE);
                off_before + part * (off - off_before)
            });
        }
        before = Some((at, off));
        below += weight;
    }
    before.map_or(0.0, |(_, off)| off)
}

/// Share of intervals that held; `None` for an empty slice.
#[must_use]
pub fn hits(outcomes: &[bool]) -> Option<f64> {
    let held = outcomes.iter().filter(|held| **held).count();
    (!outcomes.is_empty()).then(|| held as f64 / outcomes.len() as f64)
}

/// Half-widths to the earlier and to the later side, in the logarithm of the time from now.
fn half_widths(interval: ForecastInterval, now_ms: i64) -> (f64, f64) {
    let middle = ln_from_now(interval.p50_ms, now_ms);
    (
        (middle - ln_from_now(interval.p10_ms, now_ms)).max(0.0) + FLOOR,
        (ln_from_now(interval.p90_ms, now_ms) - middle).max(0.0) + FLOOR,
    )
}

fn ln_from_now(time_ms: i64, now_ms: i64) -> f64 {
    ((time_ms.saturating_sub(now_ms).max(0)) as f64 / 1000.0 + OFFSET_S).ln()
}

#[cfg(test)]
mod tests {
    use super::{Basis, Calibration, ForecastContext, Score};
    use crate::forecast::ForecastInterval;

    const MEASURED: ForecastContext = ForecastContext {
        basis: Basis::Measured,
        waits: false,
    };
    const HOUR_MS: i64 = 3_600_000;
    const RAW: ForecastInterval = ForecastInterval {
        p10_ms: HOUR_MS / 2,
        p50_ms: HOUR_MS,
        p90_ms: 2 * HOUR_MS,
    };

    fn missed(context: ForecastContext, raw: ForecastInterval, factors: &[f64]) -> Vec<Score> {
        factors
            .iter()
            .map(|factor| {
                let actual_ms = (raw.p50_ms as f64 * factor) as i64;
                Score::of(raw, 0, context, actual_ms, 1.0)
            })
            .collect()
    }

    #[test]
    fn calibration_without_scores_keeps_interval() {
        let shown = Calibration::none().apply(RAW, MEASURED, 0);
        for (shown_ms, raw_ms) in [
            (shown.p10_ms, RAW.p10_ms),
            (shown.p50_ms, RAW.p50_ms),
            (shown.p90_ms, RAW.p90_ms),
        ] {
            let off = (shown_ms as f64 / raw_ms as f64).ln().abs();
            assert!(off < 0.2, "{shown:?}");
        }
    }

    #[test]
    fn calibration_by_late_events_moves_whole_interval() {
        let late: Vec<f64> = (0..100).map(|n| 2.9 + 0.002 * f64::from(n)).collect();
        let calibration = Calibration::of(missed(MEASURED, RAW, &late));
        let shown = calibration.apply(RAW, MEASURED, 0);
        assert!(shown.p10_ms > 2 * HOUR_MS, "{shown:?}");
        assert!((shown.p50_ms - 3 * HOUR_MS).abs() < HOUR_MS / 10);
        assert!(shown.p90_ms < 4 * HOUR_MS, "{shown:?}");
    }

    #[test]
    fn scores_of_other_context_have_little_weight() {
        let guessed = ForecastContext {
            basis: Basis::Guessed,
            waits: true,
        };
        let right: Vec<f64> = (0..50).map(|n| 0.9 + 0.004 * f64::from(n)).collect();
        let mut scores = missed(MEASURED, RAW, &right);
        scores.extend(missed(guessed, RAW, &[0.02; 50]));
        let minute = ForecastInterval {
            p10_ms: 50_000,
            p50_ms: 60_000,
            p90_ms: 70_000,
        };
        scores.extend(missed(MEASURED, minute, &[20.0; 20]));
        let shown = Calibration::of(scores).apply(RAW, MEASURED, 0);
        assert!(shown.p10_ms > HOUR_MS / 2, "{shown:?}");
        assert!(shown.p90_ms < 3 * HOUR_MS / 2, "{shown:?}");
    }

    #[test]
    fn calibrated_interval_excludes_a_tenth_on_each_side() {
        let all: Vec<f64> = (1..=1_000).map(|n| f64::from(n) / 500.0).collect();
        let shown = Calibration::of(missed(MEASURED, RAW, &all)).apply(RAW, MEASURED, 0);
        let times_ms = [shown.p10_ms, shown.p50_ms, shown.p90_ms];
        for (time_ms, expected) in times_ms.into_iter().zip([0.1, 0.5, 0.9]) {
            let share = time_ms as f64 / RAW.p50_ms as f64 / 2.0;
            assert!((share - expected).abs() < 0.01, "{shown:?}");
        }
    }
}
