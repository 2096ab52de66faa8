//! What a run takes for true of a job: its speed at every size and the work it has left; what the estimators believe, thrown off as far
//! as they are unsure.

use muster_core::report::{JobReport, Length};
use muster_core::snapshot::{Job, SpeedPoint};
use muster_model::id::JobId;

/// Share of a step that more workers do not shorten, and share that only more shards do, where nothing was measured: those of the
/// core's prior.
const SERIAL: f64 = 0.05;
const EXCHANGE: f64 = 0.02;
/// Relative spread (standard deviation of the logarithm) of a speed that was not measured: models differ by factors of thousands, so
/// that nothing that rests on such a speed is shown as an interval.
const UNMEASURED: f64 = 2.0;
/// The least and the largest relative spread of a measured speed.
const MEASURED: (f64, f64) = (0.03, 0.6);
/// Between the 10 % and the 90 % quantile of a normal distribution lie so many standard deviations.
const QUANTILES_APART: f64 = 2.563;

/// Of a job whose length nobody knows it is taken that it has begun at least so long ago, in seconds.
const BEGUN_S: f64 = 30.0;

/// One job as a run has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Truth {
    pub curve: Curve,
    pub steps_left: f64,
    /// Steps that it does once more if it begins anew.
    pub done: f64,
    /// Nobody knows how many steps are left.
    pub is_open: bool,
    /// Standard deviations of the logarithms of both.
    pub speed_spread: f64,
    pub steps_spread: f64,
    /// The length that earlier jobs tell, in place of `steps_left` and its spread.
    pub length: Option<Whole>,
}

/// Steps of a job from its begin to its end, of which some are done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Whole {
    pub middle: f64,
    /// Standard deviation of the logarithm; above 0.
    pub spread: f64,
    pub done: f64,
}

impl Whole {
    /// What is left of one of the lengths that are longer than what is done.
    fn left(&self, dice: &mut Dice) -> f64 {
        let least = (self.done.max(1e-9) / self.middle).ln() / self.spread;
        let whole = self.middle * (self.spread * dice.normal_above(least)).exp();
        (whole - self.done).max(1.0)
    }
}

/// Speed at every size, from that at some: between and beyond them Amdahl's law holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    points: Vec<SpeedPoint>,
    /// By which all is faster.
    pub factor: f64,
}

impl Curve {
    /// # Panics
    /// Without a point.
    #[must_use]
    pub fn through(points: Vec<SpeedPoint>) -> Self {
        assert!(!points.is_empty(), "a curve goes through something");
        Self {
            points,
            factor: 1.0,
        }
    }

    /// Steps per second; never 0.
    #[must_use]
    pub fn steps_per_s(&self, workers: u32, ps_shards: u32) -> f64 {
        let size = (f64::from(workers.max(1)), f64::from(ps_shards.max(1)));
        let distance = |point: &SpeedPoint| {
            let known = (
                f64::from(point.workers.max(1)),
                f64::from(point.ps_shards.max(1)),
            );
            (size.0 / known.0).ln().abs() + (size.1 / known.1).ln().abs()
        };
        let nearest = self
            .points
            .iter()
            .min_by(|a, b| distance(a).total_cmp(&distance(b)))
            .expect("a curve goes through something");
        let known = (
            f64::from(nearest.workers.max(1)),
            f64::from(nearest.ps_shards.max(1)),
        );
        let speed = nearest.steps_per_s * step_share(known) / step_share(size) * self.factor;
        speed.max(1e-9)
    }
}

/// Relative duration of a step.
fn step_share((workers, ps_shards): (f64, f64)) -> f64 {
    (1.0 - SERIAL - EXCHANGE) / workers + SERIAL + EXCHANGE / ps_shards
}

/// The speed at every size, and its spread: as measured of the job itself, or of earlier jobs of its document, or guessed.
fn speed(job: &Job, said: &JobReport, measured: Vec<SpeedPoint>) -> (Curve, f64) {
    let (least, most) = MEASURED;
    let guessed = |workers: u32, ps_shards: u32, steps_per_s: f64| {
        Curve::through(vec![SpeedPoint {
            workers,
            ps_shards,
            steps_per_s: steps_per_s.max(1e-9),
            samples: 0,
        }])
    };
    if said.length == Length::Past {
        // What was seen is how long it takes, not how fast it is.
        let steps_per_s = said.speed.steps_per_s;
        let curve = match measured.is_empty() {
            true => guessed(said.workers.max(1), said.ps_shards, steps_per_s),
            false => Curve::through(measured),
        };
        return (curve, 0.0);
    }
    if !measured.is_empty() {
        // One size fits any formula: how often it was measured is in the other.
        let fitted = said.speed.mean_relative_error.unwrap_or(0.0);
        let error = fitted.max(said.speed.standard_error.unwrap_or(0.0));
        return (Curve::through(measured), error.clamp(least, most));
    }
    match job.ran {
        Some(ran) => (
            guessed(ran.workers, ran.ps_shards, ran.steps_per_s),
            ran.speed_spread.max(least),
        ),
        None => (
            guessed(said.workers.max(1), said.ps_shards, said.speed.steps_per_s),
            UNMEASURED,
        ),
    }
}

impl Truth {
    /// What the round's report says of a job.
    #[must_use]
    pub fn believed(job: &Job, said: &JobReport) -> Self {
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
        // Where it is, and not where this round would have it: as the estimate counts seconds.
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
        let steps_left = match is_open {
            true => job.trained_s.max(BEGUN_S) * steps_per_s,
            false => said.steps_left,
        };
        Self {
            curve,
            steps_left: steps_left.max(1.0),
            done,
            is_open,
            speed_spread,
            steps_spread: steps_spread.clamp(0.0, 2.0),
            length: whole(job, said, steps_per_s),
        }
    }

    /// One of the jobs that it may be. One whose length nobody knows is in every other run without end, and so are all such jobs: what
    /// depends on their end is then seen not to come. In the others it lasts as long again as it has lasted, in the middle (Gott, Nature 1993).
    #[must_use]
    pub(super) fn thrown(&self, dice: &mut Dice, run: u32) -> Self {
        let mut thrown = self.clone();
        thrown.curve.factor *= (self.speed_spread * dice.normal()).exp();
        thrown.steps_left = match (self.is_open, self.length, run % 2) {
            (false, Some(whole), _) => whole.left(dice),
            (false, None, _) => self.steps_left * (self.steps_spread * dice.normal()).exp(),
            (true, _, 0) => f64::INFINITY,
            (true, _, _) => {
                let share = dice.uniform();
                self.steps_left * share / (1.0 - share)
            }
        };
        thrown
    }

    /// Whether it goes on whatever happens.
    pub(super) fn is_endless(&self) -> bool {
        self.steps_left.is_infinite()
    }
}

/// The length in steps of a job of which earlier jobs tell how long it lasts in seconds.
fn whole(job: &Job, said: &JobReport, steps_per_s: f64) -> Option<Whole> {
    let lasts = job.lasts.filter(|lasts| lasts.spread > 0.0)?;
    (said.length == Length::Past).then_some(Whole {
        middle: lasts.middle_s.max(0.1) * steps_per_s,
        spread: lasts.spread,
        done: lasts.done_s * steps_per_s,
    })
}

/// Numbers from a seed (SplitMix64; Steele, Lea and Flood, OOPSLA 2014).
#[derive(Debug)]
pub(super) struct Dice(u64);

impl Dice {
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
        // The upper 53 bits, which a float holds exactly.
        ((z >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// Of mean 0 and variance 1 (Box and Muller).
    pub(super) fn normal(&mut self) -> f64 {
        let (radius, angle) = (self.uniform(), self.uniform());
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }

    /// The same, but above `least` (Robert, Simulation of truncated normal variables, Statistics and Computing 1995).
    fn normal_above(&mut self, least: f64) -> f64 {
        if least <= 0.0 {
            // At least every other one is taken.
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
    use super::{Dice, Whole};
    use muster_model::id::JobId;
    use uuid::Uuid;

    /// The middle of what is left, over many throws.
    fn middle(done: f64) -> f64 {
        let whole = Whole {
            middle: 100.0,
            spread: 0.5,
            done,
        };
        let mut dice = Dice::new(1, JobId(Uuid::nil()), 0);
        let mut left: Vec<f64> = (0..4_001).map(|_| whole.left(&mut dice)).collect();
        left.sort_by(f64::total_cmp);
        left[2_000]
    }

    /// Medians of the truncated lognormal distribution: exp(0.5 z) with z at the middle of the normal distribution above ln(done / 100) / 0.5.
    #[test]
    fn what_is_left_is_that_of_the_lengths_that_are_longer() {
        for (done, left) in [(0.0, 100.0), (100.0, 40.1), (200.0, 38.0)] {
            let found = middle(done);
            assert!((found / left - 1.0).abs() < 0.1, "{done}: {found}");
        }
    }
}
