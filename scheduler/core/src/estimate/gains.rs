//! Gain of an update, in steps, for a job whose batch grows with its workers: the statistical
//! efficiency of Pollux (OSDI 2021, section 3.1) with the last gradient noise scale that the job
//! reported. Speed times gain is the goodput.

use crate::learn::NoiseScale;
use crate::snapshot::{Adaptive, SnapshotJob};

/// Noise scale before the first measurement, which needs two workers. With it, two workers gain
/// about what the assumed speed promises (see `speed`). So a job explores, and its measurement
/// replaces the assumption.
const UNKNOWN: NoiseScale = NoiseScale(8.0);

/// Gain of an update by number of workers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Gains {
    /// Noise scale, and the number of workers that one batch is for. `None` if the batch does not
    /// grow.
    grows: Option<(NoiseScale, u32)>,
}

impl Gains {
    pub(crate) fn of(job: &SnapshotJob) -> Self {
        Self {
            grows: job
                .adaptive
                .filter(|adaptive| adaptive.max_batch.is_none())
                .map(|adaptive| (measured(adaptive).unwrap_or(UNKNOWN), job.workers.min)),
        }
    }

    /// Returns the steps that an update is worth: between 1 and the growth of the batch.
    pub(crate) fn at(self, workers: u32) -> f64 {
        let Some((noise, fewest)) = self.grows else {
            return 1.0;
        };
        let fewest = fewest.max(1);
        noise.gain(f64::from(workers.max(fewest)) / f64::from(fewest))
    }
}

/// Returns the reported noise scale, in batches, if it is a valid one.
pub(super) fn measured(adaptive: Adaptive) -> Option<NoiseScale> {
    let noise = adaptive.noise?;
    (noise.is_finite() && noise >= 0.0).then_some(NoiseScale(noise))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the gains of a job from two workers on.
    fn gains(noise: f64) -> Gains {
        Gains {
            grows: Some((NoiseScale(noise), 2)),
        }
    }

    #[test]
    fn gain_is_between_one_and_batch_growth() {
        assert_eq!(Gains { grows: None }.at(8), 1.0);
        for noise in [0.0, 0.5, 3.0, 1e9] {
            assert_eq!(gains(noise).at(1), 1.0, "no fewer than the fewest");
            assert_eq!(gains(noise).at(2), 1.0);
            let four = gains(noise).at(8);
            assert!((1.0..=4.0).contains(&four), "{noise}: {four}");
        }
        // (3 + 1) / (3 / 4 + 1).
        assert!((gains(3.0).at(8) - 16.0 / 7.0).abs() < 1e-12);
    }
}
