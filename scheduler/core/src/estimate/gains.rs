//! Gain of an update, in steps, for a job whose batch grows with its workers: the statistical
//! efficiency of Pollux (OSDI 2021, section 3.1) with the last gradient noise scale that the job
//! reported. Speed times gain is the goodput.

use crate::learn::{CourseNoise, GoodputModel, NoiseScale, STRETCHES};
use crate::snapshot::{Adaptive, SnapshotJob};
use muster_model::progress::COURSE_PARTS;

/// Noise scale before the first measurement, which needs two workers. With it, two workers gain
/// about what the assumed speed promises (see `speed`). So a job explores, and its measurement
/// replaces the assumption.
const UNKNOWN: NoiseScale = NoiseScale(8.0);

/// Largest factor between the noise of a job and that of its family.
const MOST_RATIO: f64 = 4.0;

/// Step of the logarithm of one plus the noise scale, to which it is rounded for the goodput.
const NOISE_STEP: f64 = 0.1;

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

/// Returns the goodput of a job whose coordinator chooses its batch. Its speeds are in steps, so
/// it has no [`Gains`].
///
/// The noise of the remaining work follows that of its family over the course, times the job's own
/// noise over the family's at the present step. Without a family the present noise stays.
pub(super) fn goodput_of(job: &SnapshotJob, family: &[CourseNoise]) -> Option<GoodputModel> {
    let adaptive = job.adaptive?;
    let batch = f64::from(job.batch.max(1));
    let own = measured(adaptive).map(|noise| noise.0);
    let course = |share: f64| noise_at(family, share).map(|examples| examples / batch);
    let done = match job.progress.max_steps {
        Some(steps) => job.progress.step as f64 / steps.max(1) as f64,
        None => 0.0,
    };
    let present = course(done);
    let ratio = match (own, present) {
        (Some(own), Some(present)) if present > 0.0 => {
            (own / present).clamp(1.0 / MOST_RATIO, MOST_RATIO)
        }
        _ => 1.0,
    };
    let noises = std::array::from_fn(|stretch| {
        let middle = (stretch as f64 + 0.5) / STRETCHES as f64;
        let expected = match job.progress.max_steps {
            Some(_) => course(done + (1.0 - done) * middle),
            None => present,
        };
        let noise = expected.map(|noise| noise * ratio).or(own).unwrap_or(0.0);
        // A small change of the noise should not change the estimates.
        let rounded = (noise.ln_1p() / NOISE_STEP).round() * NOISE_STEP;
        NoiseScale(rounded.exp_m1())
    });
    Some(GoodputModel {
        init: job.batch,
        max: adaptive.max_batch?,
        noises,
    })
}

/// Returns the noise scale of a family in examples at a share of the work: the one seen there, else
/// the nearest before, else the nearest after.
fn noise_at(family: &[CourseNoise], share: f64) -> Option<f64> {
    let part = share.clamp(0.0, 1.0) * f64::from(COURSE_PARTS);
    let after = family.partition_point(|seen| f64::from(seen.part) <= part);
    let near = after
        .checked_sub(1)
        .map_or(family.first(), |at| family.get(at));
    near.map(|seen| seen.noise_scale)
}

fn measured(adaptive: Adaptive) -> Option<NoiseScale> {
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
