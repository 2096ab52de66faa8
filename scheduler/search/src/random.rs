//! Random numbers that depend only on the study's seed, a purpose and a number, such as that of a
//! trial. So no generator state is stored.

use muster_model::study::{Point, Space};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use statrs::function::erf::erfc_inv;

/// Purpose of a draw; purposes have separate streams. The values must not change, because running
/// studies depend on them.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose {
    Suggest = 1,
    TrialSeed = 2,
    Explore = 3,
    Scramble = 4,
    Restart = 5,
}

/// ChaCha8 generator of one seed, purpose and number.
pub(crate) struct StudyRng(ChaCha8Rng);

impl StudyRng {
    /// Creates the generator; `number` is below 2^48.
    pub(crate) fn new(seed: u64, purpose: Purpose, number: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream((purpose as u64) << 48 | number);
        Self(random)
    }

    /// 64 random bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in [0, 1), a multiple of 2^-53.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform integer from 0 to `count` - 1; `count` is above 0.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        ((self.unit() * count as f64) as usize).min(count - 1)
    }

    /// Normal with mean 0 and standard deviation 1, by inversion.
    pub(crate) fn normal(&mut self) -> f64 {
        let unit = (self.bits() >> 11) as f64 + 0.5;
        -std::f64::consts::SQRT_2 * erfc_inv(2.0 * unit / (1u64 << 53) as f64)
    }

    /// Index drawn by weights, of which at least one is above 0.
    pub(crate) fn weighted(&mut self, weights: &[f64]) -> usize {
        let mut left = self.unit() * weights.iter().sum::<f64>();
        for (i, weight) in weights.iter().enumerate() {
            left -= weight;
            if left < 0.0 {
                return i;
            }
        }
        weights.len() - 1
    }

    /// Point with every parameter uniform on its scale, without the parameters whose condition does
    /// not hold. Constraints of the space are ignored.
    pub(crate) fn point(&mut self, space: &Space) -> Point {
        let mut point: Point = Vec::with_capacity(space.len());
        for dimension in &space.dimensions {
            let unit = self.unit();
            point.push(Some(dimension.domain.at(unit)));
        }
        space.prune(&mut point);
        point
    }
}
