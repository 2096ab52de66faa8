//! Goodput of a job whose coordinator chooses its batch, from its noise and that of its family.

use super::Evidence;
use super::gains::measured;
use crate::learn::{CourseNoise, GoodputModel, NoiseScale, STRETCHES, Spread, UpdateTimes};
use crate::snapshot::SnapshotJob;
use muster_model::plan::PredictedBatch;
use muster_model::progress::COURSE_PARTS;

/// Largest factor between the noise of a job and that of its family.
const MOST_RATIO: f64 = 4.0;

/// Step of the logarithm of one plus the noise scale, to which it is rounded for the goodput.
const NOISE_STEP: f64 = 0.1;

/// Returns the goodput of a job whose coordinator chooses its batch. Its speeds are in steps, so
/// it has no [`Gains`](super::Gains).
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

/// Returns the batch with the highest goodput at a size and place on a kind, at the beginning of
/// the remaining work. `None` if the coordinator does not choose the batch, or if no update on the
/// kind or no noise was measured.
pub(crate) fn predicted_batch(
    job: &SnapshotJob,
    evidence: &Evidence,
    kind: &str,
    (workers, spread): (u32, Spread),
) -> Option<PredictedBatch> {
    let family = &*evidence.family.noises;
    let is_measured = !family.is_empty() || job.adaptive.and_then(measured).is_some();
    let model = goodput_of(job, family).filter(|_| is_measured)?;
    let mut own = UpdateTimes::default();
    let times = evidence.update_times(&mut own);
    times.best_batch(&model, kind, workers, spread)
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
