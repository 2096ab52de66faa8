//! Progress of training where the size of updates changes: it grows with the workers (AdaScale,
//! Johnson et al., ICML 2020), or the coordinator chooses it ([`super::batch_choice`]).
//!
//! Steps are scale-invariant iterations there: an update counts for its gain, by which its learning
//! rate is multiplied. The place in the data therefore does not follow from the step, and both are
//! kept here, with the chosen size. They must have the same bits on every worker.

use crate::worker::head::{count_from_floats, count_to_floats};
use crate::worker::noise::GradientNoise;

/// Name of the result of [`ScaleInvariantProgress::floats`] in checkpoints.
pub const PACE: &str = "batch_rule.pace";

/// Number of 16-bit words in a count.
const WORDS: usize = 4;

/// Size of updates that the coordinator chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ChosenSize {
    /// Examples of the next update, from one batch to `most`.
    examples: usize,
    most: usize,
}

/// Progress between two updates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScaleInvariantProgress {
    /// Examples of one batch.
    batch: usize,
    /// Sum of the gains of all updates; its integer part is the step.
    progress: f64,
    /// Examples of all updates so far.
    taken: u64,
    /// Set where the size of updates is chosen.
    chosen: Option<ChosenSize>,
}

impl ScaleInvariantProgress {
    /// Progress of a run that reached `step` with one batch per update.
    #[must_use]
    pub fn at(step: u64, batch: usize) -> Self {
        Self {
            batch,
            progress: step as f64,
            taken: step.saturating_mul(batch as u64),
            chosen: None,
        }
    }

    /// Makes the size of updates a choice between one batch, with which it begins, and `most`
    /// examples.
    #[must_use]
    pub fn up_to(self, most: usize) -> Self {
        let examples = self.batch;
        Self {
            chosen: Some(ChosenSize { examples, most }),
            ..self
        }
    }

    /// Returns this progress at the beginning of a run from `step` on.
    #[must_use]
    pub fn restarted(&self, step: u64) -> Self {
        let begun = Self::at(step, self.batch);
        match self.chosen {
            Some(chosen) => begun.up_to(chosen.most),
            None => begun,
        }
    }

    /// Returns the chosen size of the next update in examples; `None` where it is not chosen.
    #[must_use]
    pub fn chosen(&self) -> Option<usize> {
        self.chosen.map(|chosen| chosen.examples)
    }

    /// Sets the size of updates from the next one on; 0 keeps it, as does a job without a choice.
    pub fn choose(&mut self, examples: usize) {
        if let (Some(chosen), 1..) = (&mut self.chosen, examples) {
            chosen.examples = examples.min(chosen.most).max(self.batch);
        }
    }

    #[must_use]
    pub fn step(&self) -> u64 {
        // The progress is never negative.
        self.progress as u64
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

    /// Encodes progress, noise averages and the chosen size for joining workers and checkpoints, as
    /// floats whose bits every transfer keeps. All workers of a job have the same number of them.
    #[must_use]
    pub fn floats(&self, noise: &GradientNoise) -> Vec<f32> {
        let [square, trace] = noise.bits();
        [self.progress.to_bits(), self.taken, square, trace]
            .into_iter()
            .chain(self.chosen().map(|examples| examples as u64))
            .flat_map(count_to_floats)
            .collect()
    }

    /// Decodes the result of [`Self::floats`]; other input changes nothing. The size of updates
    /// stays within the limits of this job, and stays as it is where the floats have none.
    pub fn resume(&mut self, floats: &[f32], noise: &mut GradientNoise) {
        let (words, rest) = floats.as_chunks::<WORDS>();
        if let ([progress, taken, square, trace, chosen @ ..], []) = (words, rest)
            && chosen.len() < 2
        {
            self.progress = f64::from_bits(count_from_floats(*progress));
            self.taken = count_from_floats(*taken);
            *noise = GradientNoise::from_bits([*square, *trace].map(count_from_floats));
            for examples in chosen {
                self.choose(count_from_floats(*examples) as usize);
            }
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

    #[test]
    fn chosen_size_is_kept_within_the_limits() {
        let (noise, mut other) = (measured(), GradientNoise::default());
        let mut pace = ScaleInvariantProgress::at(3, 4).up_to(64);
        assert_eq!(pace.chosen(), Some(4), "it begins with one batch");
        for (chosen, kept) in [(24, 24), (0, 24), (100, 64), (3, 4), (48, 48)] {
            pace.choose(chosen);
            assert_eq!(pace.chosen(), Some(kept));
        }
        let mut twin = ScaleInvariantProgress::at(0, 4).up_to(64);
        twin.resume(&pace.floats(&noise), &mut other);
        assert_eq!((twin, other), (pace, noise));
        // The checkpoint of a job with larger limits.
        let mut small = ScaleInvariantProgress::at(0, 4).up_to(32);
        small.resume(&pace.floats(&noise), &mut other);
        assert_eq!((small.chosen(), small.step()), (Some(32), 3));
        assert_eq!(pace.restarted(9).chosen(), Some(4));
        assert_eq!(pace.restarted(9).step(), 9);
    }

    /// Checkpoints of jobs with AdaScale have no size, and keep their length.
    #[test]
    fn progress_without_a_size_resumes_either_way() {
        let (noise, mut other) = (measured(), GradientNoise::default());
        let mut growing = ScaleInvariantProgress::at(3, 4);
        growing.choose(16);
        assert_eq!((growing.chosen(), growing.floats(&noise).len()), (None, 16));
        let mut chosen = ScaleInvariantProgress::at(0, 4).up_to(64);
        chosen.choose(8);
        chosen.resume(&growing.floats(&noise), &mut other);
        assert_eq!((chosen.step(), chosen.chosen()), (3, Some(8)));
        assert_eq!(chosen.floats(&noise).len(), 20);
        let mut grown = ScaleInvariantProgress::at(0, 4);
        grown.resume(&chosen.floats(&noise), &mut other);
        assert_eq!(grown, growing);
    }
}
