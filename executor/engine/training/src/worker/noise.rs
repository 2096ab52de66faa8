//! The gradient noise scale, from norms that a step computes anyway. Source: McCandlish, Kaplan,
//! Amodei and the Dota team, "An Empirical Model of Large-Batch Training", 2018, appendix A.1.
//!
//! The mean gradient of b examples has the expected squared norm |G|² + tr(Σ)/b. A worker's part of
//! a batch and the whole batch are two such means, which determine both unknowns. An exponential
//! average follows each of them, because the ratio of single measurements is too noisy. The ratio
//! tr(Σ)/|G|² is in examples. Batches well below it gain from more workers as much as from more
//! steps. Batches well above it gain nothing.

use muster_comm::wire::metadata::NoisePart;

/// Number of steps between measurements. A measurement reads all gradients twice.
pub const EVERY: u64 = NoisePart::EVERY;

/// Weight of the previous average in a measurement.
const KEEPS: f64 = 0.95;

/// Measurements of the workers' own parts of a step, summed over the workers.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct NoiseParts {
    /// Squared norms of the workers' mean gradients.
    pub squares: f32,
    /// Inverse numbers of examples.
    pub inverses: f32,
    /// Number of workers that measured.
    pub workers: f32,
}

/// Averages so far.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct GradientNoise {
    /// Average of |G|²; `trace` is that of tr(Σ) for one example. Both begin at 0 with the same
    /// weights, which cancel in the ratio.
    square: f64,
    trace: f64,
}

impl GradientNoise {
    /// Adds the measurement of one step. `whole` is the squared norm of the mean gradient of
    /// `batch` examples.
    pub fn observe(&mut self, parts: NoiseParts, whole: f64, batch: usize) {
        self.follow(parts, whole, batch, KEEPS);
    }

    /// Like [`Self::observe`], for measurements in every step; `keeps` is the weight of the
    /// previous averages.
    pub fn follow(&mut self, parts: NoiseParts, whole: f64, batch: usize, keeps: f64) {
        let workers = f64::from(parts.workers);
        if workers < 2.0 || batch == 0 {
            return;
        }
        let small = f64::from(parts.squares) / workers;
        let (inverse, whole_inverse) = (f64::from(parts.inverses) / workers, 1.0 / batch as f64);
        let apart = inverse - whole_inverse;
        let trace = (small - whole) / apart;
        let square = (inverse * whole - whole_inverse * small) / apart;
        if apart <= 0.0 || !(trace.is_finite() && square.is_finite()) {
            return;
        }
        let follow =
            |average: &mut f64, new: f64| *average = keeps * *average + (1.0 - keeps) * new;
        follow(&mut self.square, square);
        follow(&mut self.trace, trace);
    }

    /// Returns the value of one update of `examples` examples, in updates of `batch` examples. This
    /// is AdaScale's gain (Johnson, Agrawal, Gu and Guestrin, ICML 2020, equation 4): (σ² + μ²) /
    /// (σ² / s + μ²). Here s is `examples` over `batch`, and σ² is the variance of one batch's
    /// gradient. The result is between 1 and s, and 1 without a measurement.
    #[must_use]
    pub fn gain(&self, examples: u64, batch: usize) -> f64 {
        let batch = batch.max(1) as f64;
        let times = (examples as f64 / batch).max(1.0);
        let variance = self.trace.max(0.0) / batch;
        let square = self.square.max(0.0);
        let gain = (variance + square) / (variance / times + square);
        if gain.is_finite() {
            gain.clamp(1.0, times)
        } else {
            1.0
        }
    }

    /// Encodes the averages for joining workers and checkpoints.
    #[must_use]
    pub fn bits(&self) -> [u64; 2] {
        [self.square, self.trace].map(f64::to_bits)
    }

    /// Decodes the result of [`Self::bits`].
    #[must_use]
    pub fn from_bits(bits: [u64; 2]) -> Self {
        let [square, trace] = bits.map(f64::from_bits);
        Self { square, trace }
    }

    /// Returns the noise scale in examples; `None` while there is no valid estimate.
    #[must_use]
    pub fn scale(&self) -> Option<f64> {
        (self.square > 0.0 && self.trace > 0.0).then(|| self.trace / self.square)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the next value of a uniform distribution from 0 to 1.
    fn uniform(state: &mut u64) -> f64 {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (*state >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Gradients of known mean and variance, from four workers with unequal parts.
    #[test]
    fn a_known_noise_scale_is_found() {
        let (dimensions, mean, deviation) = (400, 0.1f64, 1.0f64);
        let expected = deviation.powi(2) / mean.powi(2);
        let mut state = 1u64;
        let examples = [7usize, 8, 8, 9];
        let batch: usize = examples.iter().sum();
        let mut noise = GradientNoise::default();
        for _ in 0..300 {
            let mut whole = vec![0.0; dimensions];
            let mut parts = NoiseParts::default();
            for part in examples {
                let mut own = vec![0.0; dimensions];
                for own in &mut own {
                    // The sum of `part` numbers of that variance.
                    for _ in 0..part {
                        *own += mean + deviation * (uniform(&mut state) - 0.5) * 12f64.sqrt();
                    }
                }
                whole.iter_mut().zip(&own).for_each(|(w, o)| *w += o);
                let square: f64 = own.iter().map(|o| (o / part as f64).powi(2)).sum();
                parts.squares += square as f32;
                parts.inverses += 1.0 / part as f32;
                parts.workers += 1.0;
            }
            let square: f64 = whole.iter().map(|w| (w / batch as f64).powi(2)).sum();
            noise.observe(parts, square, batch);
        }
        let found = noise.scale().unwrap();
        assert!(
            (found / expected - 1.0).abs() < 0.2,
            "{found} of {expected}"
        );
    }

    fn noise(square: f64, trace: f64) -> GradientNoise {
        GradientNoise { square, trace }
    }

    #[test]
    fn a_gain_lies_between_one_and_the_batches() {
        // Noise only: four batches are worth four steps. No noise: they are worth one.
        assert_eq!(noise(0.0, 8.0).gain(8, 2), 4.0);
        assert_eq!(noise(-1.0, 8.0).gain(8, 2), 4.0);
        assert_eq!(noise(3.0, 0.0).gain(8, 2), 1.0);
        assert_eq!(noise(3.0, -2.0).gain(8, 2), 1.0);
        // σ² = 4, μ² = 1: (4 + 1) / (1 + 1), and with half a batch more (4 + 1) / (4 / 1.5 + 1).
        assert_eq!(noise(1.0, 8.0).gain(8, 2), 2.5);
        assert!((noise(1.0, 8.0).gain(3, 2) - 15.0 / 11.0).abs() < 1e-12);
        // One batch or less is exactly one step, with any noise.
        for (square, trace) in [(0.3, 0.7), (1e-30, 1e30), (0.0, 0.0), (-1.0, -1.0)] {
            assert_eq!(noise(square, trace).gain(2, 2), 1.0);
            assert_eq!(noise(square, trace).gain(1, 2), 1.0);
        }
        assert_eq!(GradientNoise::default().gain(8, 2), 1.0);
        for times in 1..40u64 {
            for square in [1e-9, 0.1, 1.0, 1e9] {
                let gain = noise(square, 1.0).gain(times, 1);
                assert!((1.0..=times as f64).contains(&gain), "{square}, {times}");
            }
        }
        let kept = noise(0.1, -0.3);
        assert_eq!(GradientNoise::from_bits(kept.bits()), kept);
    }

    #[test]
    fn single_worker_measures_no_noise_scale() {
        let mut noise = GradientNoise::default();
        let parts = NoiseParts {
            squares: 2.0,
            inverses: 0.1,
            workers: 1.0,
        };
        noise.observe(parts, 1.0, 10);
        assert_eq!(noise, GradientNoise::default());
        assert_eq!(noise.scale(), None);
    }
}
