//! Speed at every size and remaining work of a job in one run: the estimates, varied by random
//! draws from their uncertainty.

use muster_core::report::{JobReport, Length};
use muster_core::snapshot::{SnapshotJob, SpeedPoint};
use muster_model::id::JobId;
use std::collections::BTreeMap;

/// Without measurements: share of a step that more workers do not shorten, and share that only more
/// shards shorten. Both equal the core's prior.
const SERIAL: f64 = 0.05;
const EXCHANGE: f64 = 0.02;
/// Relative spread (standard deviation of the logarithm) of a speed without a measurement. Models
/// differ by factors of thousands, so no interval is shown for such a speed.
const UNMEASURED: f64 = 2.0;
/// Smallest and largest relative spread of a measured speed.
const MEASURED: (f64, f64) = (0.03, 0.6);
/// Distance between the 10 % and the 90 % quantile of a normal distribution, in standard
/// deviations.
const QUANTILES_APART: f64 = 2.563;

/// Minimum assumed age of a job of unknown length, in seconds.
const BEGUN_S: f64 = 30.0;

/// Speed and remaining work of one job, as a distribution or as one draw of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Truth {
    pub curve: SpeedCurve,
    /// Speed on each GPU kind relative to `curve`; 1 on kinds that are not named.
    pub kinds: BTreeMap<String, f64>,
    pub steps_left: f64,
    /// Steps that the job repeats if it restarts without a checkpoint.
    pub done: f64,
    /// The number of remaining steps is unknown.
    pub is_open: bool,
    /// Standard deviations of the logarithms of speed and remaining steps.
    pub speed_spread: f64,
    pub steps_spread: f64,
    /// Length from earlier jobs; replaces `steps_left` and its spread.
    pub length: Option<Whole>,
}

/// Total length of a job in steps, with the steps done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Whole {
    pub middle: f64,
    /// Standard deviation of the logarithm; above 0.
    pub spread: f64,
    pub done: f64,
}

impl Whole {
    /// Draws the remaining steps from the lengths above `done`.
    fn left(&self, rng: &mut ForecastRng) -> f64 {
        let least = (self.done.max(1e-9) / self.middle).ln() / self.spread;
        let whole = self.middle * (self.spread * rng.normal_above(least)).exp();
        (whole - self.done).max(1.0)
    }
}

/// Speed at every size. Amdahl's law interpolates and extrapolates from the known sizes.
#[derive(Debug, Clone, PartialEq)]
pub struct SpeedCurve {
    points: Vec<SpeedPoint>,
    /// Factor on all speeds.
    pub factor: f64,
}

impl SpeedCurve {
    /// Curve through measured points.
    ///
    /// # Panics
    /// If `points` is empty.
    #[must_use]
    pub fn through(points: Vec<SpeedPoint>) -> Self {
        assert!(!points.is_empty(), "a curve goes through something");
        Self {
            points,
            factor: 1.0,
        }
    }

    /// Curve through one point without measurements.
    fn guessed(workers: u32, ps_shards: u32, steps_per_s: f64) -> Self {
        Self::through(vec![SpeedPoint {
            workers,
            ps_shards,
            steps_per_s: steps_per_s.max(1e-9),
            samples: 0,
        }])
    }

    /// Steps per second; always above 0.
    #[must_use]
    pub fn steps_per_s(&self, workers: u32, ps_shards: u32) -> f64 {
        let size = (f64::from(workers.max(1)), f64::from(ps_shards.max(1)));
        let nearest = self
            .points
            .iter()
            .min_by(|a, b| distance(size, size_of(a)).total_cmp(&distance(size, size_of(b))))
            .expect("a curve goes through something");
        let known = size_of(nearest);
        let speed = nearest.steps_per_s * step_share(known) / step_share(size) * self.factor;
        speed.max(1e-9)
    }
}

/// Workers and PS shards of a point.
fn size_of(point: &SpeedPoint) -> (f64, f64) {
    (
        f64::from(point.workers.max(1)),
        f64::from(point.ps_shards.max(1)),
    )
}

/// Distance of two sizes, in logarithms.
fn distance(size: (f64, f64), known: (f64, f64)) -> f64 {
    (size.0 / known.0).ln().abs() + (size.1 / known.1).ln().abs()
}

/// Relative duration of a step.
fn step_share((workers, ps_shards): (f64, f64)) -> f64 {
    (1.0 - SERIAL - EXCHANGE) / workers + SERIAL + EXCHANGE / ps_shards
}

/// Speed at every size and its spread, from measurements of the job, from earlier jobs of its
/// document, or from the prior.
fn speed(job: &SnapshotJob, said: &JobReport, measured: Vec<SpeedPoint>) -> (SpeedCurve, f64) {
    let (least, most) = MEASURED;
    if said.length == Length::Past {
        // Earlier jobs gave a duration, so the spread of the speed does not count.
        let steps_per_s = said.speed.steps_per_s;
        let curve = if measured.is_empty() {
            SpeedCurve::guessed(said.workers.max(1), said.ps_shards, steps_per_s)
        } else {
            SpeedCurve::through(measured)
        };
        return (curve, 0.0);
    }
    if !measured.is_empty() {
        // One measured size fits any formula, so the standard error of its samples counts too.
        let fitted = said.speed.mean_relative_error.unwrap_or(0.0);
        let error = fitted.max(said.speed.standard_error.unwrap_or(0.0));
        return (SpeedCurve::through(measured), error.clamp(least, most));
    }
    match job.ran {
        Some(ran) => (
            SpeedCurve::guessed(ran.workers, ran.ps_shards, ran.steps_per_s),
            ran.speed_spread.max(least),
        ),
        None => (
            SpeedCurve::guessed(said.workers.max(1), said.ps_shards, said.speed.steps_per_s),
            UNMEASURED,
        ),
    }
}

impl Truth {
    /// Distribution of a job from the round's report.
    #[must_use]
    pub fn believed(job: &SnapshotJob, said: &JobReport) -> Self {
        let measured: Vec<SpeedPoint> = job
            .speeds
            .iter()
            .filter(|point| point.samples > 0 && point.steps_per_s > 0.0)
            .copied()
            .collect();
        let (curve, speed_spread) = speed(job, said, measured);
        let steps_spread = match said.steps_left_between {
            Some((least, most)) => (most.max(1.0) / least.max(1.0)).ln() / QUANTILES_APART,
            None => 0.0,
        };
        // Uses the present size and not the size that this round plans, because the estimate counts
        // seconds at that size.
        let (workers, ps_shards) = match job.size() {
            (0, _) => (job.workers.min, job.ps_shards.min),
            size => size,
        };
        let steps_per_s = curve.steps_per_s(workers, ps_shards);
        let done = match (said.length, &job.lasts) {
            (Length::Past, Some(lasts)) => lasts.done_s * steps_per_s,
            _ => job.progress.step as f64,
        };
        let is_open = !said.length.is_known();
        let steps_left = if is_open {
            job.trained_s.max(BEGUN_S) * steps_per_s
        } else {
            said.steps_left
        };
        Self {
            curve,
            kinds: said.speed.by_kind.clone(),
            steps_left: steps_left.max(1.0),
            done,
            is_open,
            speed_spread,
            steps_spread: steps_spread.clamp(0.0, 2.0),
            length: whole(job, said, steps_per_s),
        }
    }

    /// Steps per second on GPUs of a kind; always above 0.
    #[must_use]
    pub fn steps_per_s(&self, kind: Option<&str>, (workers, ps_shards): (u32, u32)) -> f64 {
        let factor = kind.and_then(|kind| self.kinds.get(kind)).unwrap_or(&1.0);
        (self.curve.steps_per_s(workers, ps_shards) * factor).max(1e-9)
    }

    /// Draws one job from the distribution. In every other run a job of unknown length is endless,
    /// as are all such jobs. An event that depends on its end then does not happen. In the other
    /// runs the median of its remaining time equals its age (Gott, Nature 1993).
    #[must_use]
    pub(super) fn thrown(&self, rng: &mut ForecastRng, run: u32) -> Self {
        let mut thrown = self.clone();
        thrown.curve.factor *= (self.speed_spread * rng.normal()).exp();
        thrown.steps_left = match (self.is_open, self.length, run % 2) {
            (false, Some(whole), _) => whole.left(rng),
            (false, None, _) => self.steps_left * (self.steps_spread * rng.normal()).exp(),
            (true, _, 0) => f64::INFINITY,
            (true, _, _) => {
                let share = rng.uniform();
                self.steps_left * share / (1.0 - share)
            }
        };
        thrown
    }

    /// Whether the job never ends.
    pub(super) fn is_endless(&self) -> bool {
        self.steps_left.is_infinite()
    }
}

/// Length in steps from the durations of earlier jobs, which are seconds.
fn whole(job: &SnapshotJob, said: &JobReport, steps_per_s: f64) -> Option<Whole> {
    let lasts = job.lasts.filter(|lasts| lasts.spread > 0.0)?;
    (said.length == Length::Past).then_some(Whole {
        middle: lasts.middle_s.max(0.1) * steps_per_s,
        spread: lasts.spread,
        done: lasts.done_s * steps_per_s,
    })
}

/// Random numbers from a seed (SplitMix64; Steele, Lea and Flood, OOPSLA 2014).
#[derive(Debug)]
pub(super) struct ForecastRng(u64);

impl ForecastRng {
    pub(super) fn new(seed: u64, job: JobId, run: u32) -> Self {
        let (high, low) = job.0.as_u64_pair();
        let job = high.rotate_left(32) ^ low.wrapping_mul(0x9fb2_1c65_1e98_df25);
        Self(seed ^ job ^ u64::from(run).wrapping_mul(0xd134_2543_de82_ef95))
    }

    /// Between 0 and 1, both excluded.
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        // The upper 53 bits, which a float represents exactly.
        ((z >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// Normal with mean 0 and variance 1 (Box and Muller).
    pub(super) fn normal(&mut self) -> f64 {
        let (radius, angle) = (self.uniform(), self.uniform());
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }

    /// Standard normal above `least` (Robert, Simulation of truncated normal variables, Statistics
    /// and Computing 1995).
    fn normal_above(&mut self, least: f64) -> f64 {
        if least <= 0.0 {
            // At least every second number is accepted.
            loop {
                let number = self.normal();
                if number >= least {
                    return number;
                }
            }
        }
        let rate = (least + (least * least + 4.0).sqrt()) / 2.0;
        loop {
            let number = least - self.uniform().ln() / rate;
            if self.uniform() <= (-(number - rate).powi(2) / 2.0).exp() {
                return number;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ForecastRng, Whole};
    use muster_model::id::JobId;
    use uuid::Uuid;

    /// Median of the remaining length over many draws.
    fn middle(done: f64) -> f64 {
        let whole = Whole {
            middle: 100.0,
            spread: 0.5,
            done,
        };
        let mut rng = ForecastRng::new(1, JobId(Uuid::nil()), 0);
        let mut left: Vec<f64> = (0..4_001).map(|_| whole.left(&mut rng)).collect();
        left.sort_by(f64::total_cmp);
        left[2_000]
    }

    /// Medians of the truncated lognormal distribution: exp(0.5 z), z the median of the normal
    /// distribution above ln(done / 100) / 0.5.
    #[test]
    fn remaining_length_is_drawn_from_lengths_above_done() {
        for (done, left) in [(0.0, 100.0), (100.0, 40.1), (200.0, 38.0)] {
            let found = middle(done);
            assert!((found / left - 1.0).abs() < 0.1, "{done}: {found}");
        }
    }
}
