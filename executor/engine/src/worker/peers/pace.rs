//! How far training has come where the batch grows with the workers (AdaScale, Johnson et al., ICML 2020).
//!
//! Steps there are scale-invariant iterations: an update counts for its gain, which is what its learning rate is multiplied by. So the
//! place in the data no more follows from the step, and both are kept here. It must be the same bits on every worker.

use crate::worker::head::{count_from_floats, count_to_floats};
use crate::worker::noise::Noise;

/// In checkpoints: what [`Pace::floats`] gives.
pub const PACE: &str = "batch_rule.pace";

/// Words of sixteen bits in a count.
const WORDS: usize = 4;

/// Between two updates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// Examples of one batch.
    batch: usize,
    /// Gains of all updates so far; its whole part is the step.
    progress: f64,
    /// Examples of all updates so far.
    taken: u64,
}

impl Pace {
    /// Of a run that has stood at `step` without ever growing.
    #[must_use]
    pub fn at(step: u64, batch: usize) -> Self {
        Self {
            batch,
            progress: step as f64,
            taken: step.saturating_mul(batch as u64),
        }
    }

    #[must_use]
    pub fn step(&self) -> u64 {
        // Not negative.
        self.progress as u64
    }

    /// Examples of one batch.
    #[must_use]
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Where the next update's examples begin.
    #[must_use]
    pub fn place(&self) -> u64 {
        self.taken
    }

    /// What the averages of noise keep after an update of `examples`: the more batches it has, the less, so that they look back on
    /// about as many examples whatever their number (the paper's appendix B.3).
    #[must_use]
    pub fn keeps(&self, examples: usize) -> f64 {
        let times = examples as f64 / self.batch.max(1) as f64;
        (1.0 - times / 1000.0).max(0.0)
    }

    /// An update of `examples` was cut, and `counted` of them are in its sum: less where somebody has died in the middle of it. Its
    /// gain.
    pub fn advance(&mut self, noise: &Noise, examples: usize, counted: u64) -> f64 {
        let gain = noise.gain(counted, self.batch);
        self.progress += gain;
        self.taken += examples as u64;
        gain
    }

    /// As newcomers and checkpoints are given it, with the noise that gains come from: floats that are the same bits wherever they
    /// are carried.
    #[must_use]
    pub fn floats(&self, noise: &Noise) -> Vec<f32> {
        let [square, trace] = noise.bits();
        [self.progress.to_bits(), self.taken, square, trace]
            .into_iter()
            .flat_map(count_to_floats)
            .collect()
    }

    /// Takes up what [`Self::floats`] gave; what is something else changes nothing.
    pub fn resume(&mut self, floats: &[f32], noise: &mut Noise) {
        let (words, rest) = floats.as_chunks::<WORDS>();
        if let ([progress, taken, square, trace], []) = (words, rest) {
            self.progress = f64::from_bits(count_from_floats(*progress));
            self.taken = count_from_floats(*taken);
            *noise = Noise::from_bits([*square, *trace].map(count_from_floats));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::noise::Parts;

    fn measured() -> Noise {
        let mut noise = Noise::default();
        let parts = Parts {
            squares: 1.0,
            inverses: 0.5,
            workers: 2.0,
        };
        noise.observe(parts, 0.3, 8);
        noise
    }

    #[test]
    fn steps_count_gains_and_places_count_examples() {
        let noise = measured();
        let mut pace = Pace::at(10, 4);
        assert_eq!((pace.step(), pace.place()), (10, 40));
        assert_eq!(pace.advance(&noise, 4, 4), 1.0, "one batch is a step");
        assert_eq!((pace.step(), pace.place()), (11, 44));
        let gain = pace.advance(&noise, 16, 16);
        assert!(gain > 1.0 && gain < 4.0, "{gain}");
        assert_eq!(pace.place(), 60);
        assert_eq!(pace.step(), (11.0 + gain) as u64);
        // Somebody's quarter is not in the sum.
        let less = pace.advance(&noise, 16, 12);
        assert!(less > 1.0 && less < gain, "{less}, {gain}");
        assert_eq!(pace.place(), 76, "his examples are not taken again");
    }

    #[test]
    fn a_pace_is_handed_on_to_the_bit() {
        let noise = measured();
        let mut pace = Pace::at(3, 4);
        pace.advance(&noise, 1 << 40, 1 << 40);
        let (mut other, mut theirs) = (Pace::at(0, 4), Noise::default());
        other.resume(&pace.floats(&noise), &mut theirs);
        assert_eq!((other, theirs), (pace, noise));
        other.resume(&[1.0; 15], &mut theirs);
        assert_eq!((other, theirs), (pace, noise), "not a pace");
    }
}
