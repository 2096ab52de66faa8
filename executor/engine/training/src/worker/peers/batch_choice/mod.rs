//! Choice of the examples of an update (`batch_rule: goodput`), after Pollux (Qiao et al., OSDI
//! 2021): the agent of a job tunes its batch, the scheduler its number of workers.
//!
//! Goodput is updates per second times the gain of an update. The gain follows from the measured
//! gradient noise ([`GradientNoise::gain`]). The seconds of an update are the sum of two lines over
//! its largest part, the examples of one worker. Both go through the measured parts of the present
//! number of workers:
//!
//! - the coordinator's work: loading and computing;
//! - the rest: exchange, waiting for slower workers, and the update of the parameters.
//!
//! They are apart because the speed of processors and that of the network change independently.
//!
//! The coordinator alone measures and decides. Its decision travels in the head of a step, so that
//! all workers change the batch after the same update.

mod times;

#[cfg(test)]
mod tests;

use crate::worker::noise::GradientNoise;
use std::fmt;
use times::{TimeLine, UpdateTimes, are_apart};

/// Minimum number of measured updates between two decisions.
const DECIDES_AFTER: u64 = 50;

/// Minimum time of measured updates between two decisions, in seconds.
const DECIDES_AFTER_S: f64 = 1.0;

/// Largest factor on both minima, and on the number of updates that mean times cover. It doubles
/// when growth follows on shrinking or the reverse, and halves when the batch stays. Otherwise a
/// load that comes and goes could make the batch swing.
const MOST_PATIENCE: u32 = 32;

/// Number of updates after a change that are not measured: they touch new memory.
const SETTLES: u64 = 3;

/// Smallest ratio of predicted goodputs for which the batch changes.
const WORTH_IT: f64 = 1.05;

/// Largest factor beyond the measured batches, so that measured times replace extrapolated ones
/// (Pollux).
const EXPLORES: usize = 2;

/// Number of candidates per doubling of the batch, whose ratio is therefore 1.19.
const PER_DOUBLING: f64 = 4.0;

/// Times of an update on the coordinator.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeasuredUpdate {
    /// Examples of all workers.
    pub batch: usize,
    pub workers: usize,
    /// Seconds of loading and computing.
    pub work_s: f64,
    /// All other seconds.
    pub rest_s: f64,
}

/// Decision for another batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchChange {
    pub from: usize,
    pub to: usize,
    /// `None` if the time of other batches is to be measured first.
    goodput: Option<PredictedGoodput>,
    /// In examples, if it is known.
    noise_scale: Option<f64>,
    /// Measured seconds of an update of `from` examples.
    update_s: f64,
    workers: usize,
}

/// Goodputs before and after a change, in steps per second.
#[derive(Debug, Clone, Copy, PartialEq)]
struct PredictedGoodput {
    before: f64,
    after: f64,
}

/// The coordinator's measurements and choice.
#[derive(Debug)]
pub struct BatchChoice {
    /// Candidates in ascending order, from `engine.batch` to `engine.max_batch`.
    ladder: Vec<usize>,
    /// Batch and number of workers of the last update.
    batch: usize,
    workers: usize,
    /// Times of updates of the present number of workers, and the smallest and largest batch of
    /// them.
    work: UpdateTimes,
    rest: UpdateTimes,
    measured: Option<(usize, usize)>,
    /// Number of updates that are still not measured.
    unsettled: u64,
    /// Measured updates and their seconds since the last decision or change.
    updates: u64,
    seconds: f64,
    /// Factor on the minima between two decisions.
    patience: u32,
    /// Whether the last change was to a larger batch.
    grew: Option<bool>,
}

impl BatchChoice {
    /// Chooses between `batch` and `most` examples.
    #[must_use]
    pub fn new(batch: usize, most: usize) -> Self {
        Self {
            ladder: ladder(batch.max(1), most),
            batch: 0,
            workers: 0,
            work: UpdateTimes::default(),
            rest: UpdateTimes::default(),
            measured: None,
            unsettled: 0,
            updates: 0,
            seconds: 0.0,
            patience: 1,
            grew: None,
        }
    }

    /// Adds an update.
    pub fn observe(&mut self, update: MeasuredUpdate) {
        if self.workers != update.workers {
            (self.measured, self.patience, self.grew) = (None, 1, None);
            (self.work, self.rest) = <(UpdateTimes, UpdateTimes)>::default();
        }
        if (self.batch, self.workers) != (update.batch, update.workers) {
            (self.batch, self.workers) = (update.batch, update.workers);
            (self.unsettled, self.updates, self.seconds) = (SETTLES, 0, 0.0);
        }
        if self.unsettled > 0 {
            self.unsettled -= 1;
            return;
        }
        let (least, most) = self.measured.unwrap_or((update.batch, update.batch));
        self.measured = Some((least.min(update.batch), most.max(update.batch)));
        let part = self.part(update.batch);
        let memory = (DECIDES_AFTER * u64::from(self.patience)) as f64;
        self.work.observe(part, update.work_s, memory);
        self.rest.observe(part, update.rest_s, memory);
        self.updates += 1;
        self.seconds += update.work_s + update.rest_s;
    }

    /// Returns a change of the batch if a decision is due and another batch promises enough.
    ///
    /// - The best batch of the whole ladder must promise [`WORTH_IT`]. The change goes towards it,
    ///   at most by the factor [`EXPLORES`] beyond the measured batches. Goodput rises up to its
    ///   only maximum, so every batch up to it is better than the present one.
    /// - After the start and after a change of the workers, only one batch has a measured time. How
    ///   much of it grows with the batch is unknown. Then another batch is tried, if one of the
    ///   ladder promises enough in the best case: a larger one with a constant time, a smaller one
    ///   with a time in proportion to it. A doubled batch takes at most twice as long and counts at
    ///   least as much; a halved one counts at least half. So a trial costs at most half of the
    ///   progress until the next decision.
    pub fn choose(&mut self, noise: &GradientNoise) -> Option<BatchChange> {
        if !self.is_due() {
            return None;
        }
        (self.updates, self.seconds) = (0, 0.0);
        let line = self.line();
        let to = match line {
            Some(line) => self.towards_best(line, noise),
            None => self.trial(noise),
        };
        let Some(to) = to else {
            self.patience = (self.patience / 2).max(1);
            return None;
        };
        let grew = Some(to > self.batch);
        if self.grew.is_some() && self.grew != grew {
            self.patience = (2 * self.patience).min(MOST_PATIENCE);
        }
        self.grew = grew;
        let goodput = line.map(|line| PredictedGoodput {
            before: self.goodput(self.batch, line, noise),
            after: self.goodput(to, line, noise),
        });
        Some(BatchChange {
            from: self.batch,
            to,
            goodput,
            noise_scale: noise.scale(),
            update_s: self.present_s()?,
            workers: self.workers,
        })
    }

    fn is_due(&self) -> bool {
        self.updates >= DECIDES_AFTER * u64::from(self.patience)
            && self.seconds >= DECIDES_AFTER_S * f64::from(self.patience)
    }

    fn line(&self) -> Option<TimeLine> {
        Some(self.work.line()?.plus(self.rest.line()?))
    }

    /// Returns the measured seconds of an update of the present batch.
    fn present_s(&self) -> Option<f64> {
        let part = self.part(self.batch);
        Some(self.work.mean(part)? + self.rest.mean(part)?)
    }

    /// Returns the best batch if it promises enough, or the reachable one that is next to it.
    fn towards_best(&self, line: TimeLine, noise: &GradientNoise) -> Option<usize> {
        let goodput = |batch: usize| self.goodput(batch, line, noise);
        let candidates = self.ladder.iter().copied();
        let best = candidates.max_by(|a, b| goodput(*a).total_cmp(&goodput(*b)))?;
        if goodput(best) < WORTH_IT * goodput(self.batch) {
            return None;
        }
        let reachable = self.reachable()?;
        let to = best.clamp(*reachable.first()?, *reachable.last()?);
        (to != self.batch).then_some(to)
    }

    /// Returns a batch whose time, with that of the present one, determines all times, if it may
    /// promise enough.
    fn trial(&self, noise: &GradientNoise) -> Option<usize> {
        let reachable = self.reachable()?;
        let (smaller, larger) = (*reachable.first()?, *reachable.last()?);
        let part = self.part(self.batch);
        let now = WORTH_IT * self.gain(self.batch, noise);
        let per_example = |batch: usize| self.gain(batch, noise) / self.part(batch) as f64;
        let of_smaller = self.ladder.iter().take_while(|batch| **batch < self.batch);
        let shrinks = of_smaller
            .into_iter()
            .any(|batch| per_example(*batch) >= now / part as f64);
        let grows = self.gain(*self.ladder.last()?, noise) >= now;
        let larger = Some(larger).filter(|batch| are_apart(part, self.part(*batch)));
        let smaller = Some(smaller).filter(|batch| are_apart(self.part(*batch), part));
        if grows {
            larger.or(smaller)
        } else if shrinks {
            // The time of a larger batch determines those of smaller ones too.
            smaller.or(larger)
        } else {
            None
        }
    }

    /// Returns the candidates near the measured batches, in ascending order. Each has at least one
    /// example per worker.
    fn reachable(&self) -> Option<&[usize]> {
        let (least, most) = self.measured?;
        let least = (least / EXPLORES).max(self.workers);
        let most = most.saturating_mul(EXPLORES);
        let first = self.ladder.partition_point(|batch| *batch < least);
        let end = self.ladder.partition_point(|batch| *batch <= most);
        Some(&self.ladder[first..end])
    }

    /// Returns the examples of the largest part.
    fn part(&self, batch: usize) -> usize {
        batch.div_ceil(self.workers.max(1))
    }

    fn gain(&self, batch: usize, noise: &GradientNoise) -> f64 {
        noise.gain(batch as u64, self.ladder[0])
    }

    /// Returns the steps per second with updates of `batch` examples.
    fn goodput(&self, batch: usize, line: TimeLine, noise: &GradientNoise) -> f64 {
        self.gain(batch, noise) / line.seconds(self.part(batch)).max(f64::MIN_POSITIVE)
    }
}

/// Returns candidates from `batch` to `most`, both included, in a geometric sequence.
fn ladder(batch: usize, most: usize) -> Vec<usize> {
    let mut ladder = vec![batch];
    for rung in 1.. {
        let next = (batch as f64 * (f64::from(rung) / PER_DOUBLING).exp2()).round() as usize;
        if next >= most {
            break;
        }
        ladder.push(next);
    }
    ladder.push(most.max(batch));
    ladder.dedup();
    ladder
}

impl fmt::Display for BatchChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "batch {} instead of {}: ", self.to, self.from)?;
        match self.goodput {
            Some(PredictedGoodput { before, after }) => write!(
                f,
                "predicted goodput {after:.1} instead of {before:.1} steps/s"
            )?,
            None => write!(f, "to measure how long it takes")?,
        }
        if let Some(noise_scale) = self.noise_scale {
            write!(f, ", noise scale {noise_scale:.0} examples")?;
        }
        let (update_ms, workers) = (self.update_s * 1e3, self.workers);
        write!(f, ", {update_ms:.2} ms per update of {workers} workers")
    }
}
