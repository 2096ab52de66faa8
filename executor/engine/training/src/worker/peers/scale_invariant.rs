//! Progress of training where the batch grows with the workers (AdaScale, Johnson et al., ICML
//! 2020).
//!
//! Steps are scale-invariant iterations there: an update counts for its gain, by which its learning
//! rate is multiplied. The place in the data therefore does not follow from the step, and both are
//! kept here. They must have the same bits on every worker.

use crate::worker::head::{count_from_floats, count_to_floats};
use crate::worker::noise::GradientNoise;

/// Name of the result of [`ScaleInvariantProgress::floats`] in checkpoints.
pub const PACE: &str = "batch_rule.pace";

/// Number of 16-bit words in a count.
const WORDS: usize = 4;

/// Progress between two updates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScaleInvariantProgress {
    /// Examples of one batch.
    batch: usize,
    /// Sum of the gains of all updates; its integer part is the step.
    progress: f64,
    /// Examples of all updates so far.
    taken: u64,
}

impl ScaleInvariantProgress {
    /// Progress of a run that reached `step` with one batch per update.
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
        // The progress is never negative.
        self.progress as u64
    }

    /// Returns the examples of one batch.
    #[must_use]
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Returns the place at which the next update's examples begin.
    #[must_use]
    pub fn place(&self) -> u64 {
        self.taken
    }

    /// Returns the weight of the previous noise averages after an update of `examples` examples. It
    /// falls with the number of batches, so that the averages cover about the same number of
    /// examples (the paper's appendix B.3).
    #[must_use]
    pub fn keeps(&self, examples: usize) -> f64 {
        let times = examples as f64 / self.batch.max(1) as f64;
        (1.0 - times / 1000.0).max(0.0)
    }

    /// Counts an update that was cut for `examples` examples and whose sum has `counted` of them;
    /// it has fewer after a death in the step. Returns its gain.
    pub fn advance(&mut self, noise: &GradientNoise, examples: usize, counted: u64) -> f64 {
        let gain = noise.gain(counted, self.batch);
        self.progress += gain;
        self.taken += examples as u64;
        gain
    }

    /// Encodes progress and noise averages for joining workers and checkpoints, as floats whose
    /// bits every transfer keeps.
    #[must_use]
    pub fn floats(&self, noise: &GradientNoise) -> Vec<f32> {
        let [square, trace] = noise.bits();
        [self.progress.to_bits(), self.taken, square, trace]
            .into_iter()
            .flat_map(count_to_floats)
            .collect()
    }

    /// Decodes the result of [`Self::floats`]; other input changes nothing.
    pub fn resume(&mut self, floats: &[f32], noise: &mut GradientNoise) {
        let (words, rest) = floats.as_chunks::<WORDS>();
        if let ([progress, taken, square, trace], []) = (words, rest) {
            self.progress = f64::from_bits(count_from_floats(*progress));
            self.taken = count_from_floats(*taken);
            *noise = GradientNoise::from_bits([*square, *trace].map(count_from_floats));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::noise::NoiseParts;

    fn measured() -> GradientNoise {
        let mut noise = GradientNoise::default();
        let parts = NoiseParts {
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
        let mut pace = ScaleInvariantProgress::at(10, 4);
        assert_eq!((pace.step(), pace.place()), (10, 40));
        assert_eq!(pace.advance(&noise, 4, 4), 1.0, "one batch is a step");
        assert_eq!((pace.step(), pace.place()), (11, 44));
        let gain = pace.advance(&noise, 16, 16);
        assert!(gain > 1.0 && gain < 4.0, "{gain}");
        assert_eq!(pace.place(), 60);
        assert_eq!(pace.step(), (11.0 + gain) as u64);
        // A quarter of the examples is missing from the sum, after a death.
        let less = pace.advance(&noise, 16, 12);
        assert!(less > 1.0 && less < gain, "{less}, {gain}");
        assert_eq!(pace.place(), 76, "his examples are not taken again");
    }

    #[test]
    fn pace_round_trips_exactly() {
        let noise = measured();
        let mut pace = ScaleInvariantProgress::at(3, 4);
        pace.advance(&noise, 1 << 40, 1 << 40);
        let (mut other, mut theirs) = (ScaleInvariantProgress::at(0, 4), GradientNoise::default());
        other.resume(&pace.floats(&noise), &mut theirs);
        assert_eq!((other, theirs), (pace, noise));
        other.resume(&[1.0; 15], &mut theirs);
        assert_eq!((other, theirs), (pace, noise), "not a pace");
    }
}
