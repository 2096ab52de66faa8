//! Throughput model: the speed of a job with `w` workers and `p` shards, from a fitted formula and
//! kriged residuals.
//!
//! The formula is the one of Optimus with one term changed (see `trend`). Neighbours of a measured
//! size share a part of its residual. That part is kriged (see `surface`), which also gives the
//! standard error of each prediction. A measured size has its measured speed.
//!
//! Before two sizes are measured the curve follows Amdahl's law, which always promises a gain for
//! one worker more. So a job explores, and its measurements replace the promise. With measured
//! sizes the assumed curve stays in the fit, with a weight that falls with their number. So two
//! points do not promise implausible speeds far from them, and eight points dominate.

use super::surface::{Cholesky, NOISE, Size, SurfacePoint};
use super::trend::{Formula, StepTimePoint, Trend};
use crate::policy::Policy;
use crate::problem::KindSpeedCurve;
use crate::snapshot::SnapshotJob;
use muster_model::spec::Range;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Speed of a job at every size.
#[derive(Debug, Clone)]
pub(crate) struct Speed {
    assumed: Assumed,
    /// `None` while fewer than two sizes are measured.
    trend: Option<Trend>,
    /// Kriging weight of each size in the trend, from its residual.
    missed: Vec<(SurfacePoint, f64)>,
    /// Measured seconds per step with their trust, 0 to 1.
    measured: BTreeMap<Size, (f64, f64)>,
    /// Largest numbers of workers and shards from which the job explores; `None` before its own
    /// first measurement.
    largest: Option<Size>,
    /// Measured sizes, and the factor of their covariance.
    known: Vec<SurfacePoint>,
    covariance: Cholesky,
    /// Speeds by number of workers on one node that replace the model, also at measured sizes.
    pub curve: Option<Arc<KindSpeedCurve>>,
    pub mean_relative_error: Option<f64>,
}

/// Amdahl's law for the workers, and a share of the exchange that more shards shorten.
#[derive(Debug, Clone, Copy)]
struct Assumed {
    /// Seconds per step of one worker with one shard.
    base_s: f64,
    /// Number of workers that divide the batch of `base_s`, if each worker's part of a batch is
    /// constant.
    fixed_part: Option<u32>,
    serial_share: f64,
    exchange_share: f64,
}

impl Assumed {
    fn of(formula: Formula, policy: &Policy) -> Self {
        Self {
            base_s: 1.0 / policy.prior_steps_per_s,
            fixed_part: formula.fixed_part,
            serial_share: policy.prior_serial_share,
            exchange_share: policy.prior_exchange_share,
        }
    }

    fn step_s(self, (workers, ps_shards): Size) -> f64 {
        let parallel = 1.0 - self.serial_share - self.exchange_share;
        let sharers = self.fixed_part.unwrap_or(workers);
        self.base_s
            * (parallel / f64::from(sharers.max(1))
                + self.serial_share
                + self.exchange_share / f64::from(ps_shards.max(1)))
    }

    /// Returns the curve scaled to the measured sizes.
    fn rescaled(self, measured: &BTreeMap<Size, (f64, f64)>) -> Self {
        let (sum, weight) = measured
            .iter()
            .map(|(&size, &(step_s, trust))| (trust * step_s / self.step_s(size), trust))
            .fold((0.0, 0.0), |total, next| {
                (total.0 + next.0, total.1 + next.1)
            });
        let base_s = if weight > 0.0 {
            self.base_s * sum / weight
        } else {
            self.base_s
        };
        Self { base_s, ..self }
    }
}

impl Speed {
    pub(crate) fn of(job: &SnapshotJob, policy: &Policy) -> Self {
        let full = policy.full_weight_samples.max(1) as f64;
        let measured = job
            .speeds
            .iter()
            .filter(|point| {
                point.steps_per_s.is_finite()
                    && point.steps_per_s > 0.0
                    && point.samples > 0
                    && point.workers > 0
            })
            .map(|point| {
                let trust = (point.samples as f64 / full).min(1.0);
                (
                    (point.workers, point.ps_shards),
                    (1.0 / point.steps_per_s, trust),
                )
            })
            .collect();
        let ranges = (job.workers, job.ps_shards);
        Self::from_measured(formula(job), measured, ranges, policy)
    }

    /// Fits the model to measurements of a job and its family. `measured` has seconds per step and
    /// their trust. `largest` is the size from which the job explores.
    pub(crate) fn learned(
        job: &SnapshotJob,
        measured: BTreeMap<Size, (f64, f64)>,
        largest: Option<Size>,
        policy: &Policy,
    ) -> Self {
        let ranges = (job.workers, job.ps_shards);
        Self {
            largest,
            ..Self::from_measured(formula(job), measured, ranges, policy)
        }
    }

    /// Returns the seconds per step at a size before a measurement.
    pub(crate) fn assumed_step_s(job: &SnapshotJob, size: Size, policy: &Policy) -> f64 {
        Assumed::of(formula(job), policy).step_s(size)
    }

    /// Fits the model. `measured` has seconds per step and their trust, `ranges` the job's ranges.
    fn from_measured(
        formula: Formula,
        measured: BTreeMap<Size, (f64, f64)>,
        ranges: (Range, Range),
        policy: &Policy,
    ) -> Self {
        let assumed = Assumed::of(formula, policy).rescaled(&measured);
        let mut points: Vec<StepTimePoint> = measured
            .iter()
            .map(|(&size, &(step_s, trust))| StepTimePoint {
                size,
                step_s,
                weight: trust.sqrt(),
            })
            .collect();
        let known: Vec<SurfacePoint> = points
            .iter()
            .map(|point| SurfacePoint::of(point.size))
            .collect();
        let covariance = kriging(&points, &known, SurfacePoint::covariance);
        let trend = if measured.len() >= 2 {
            let weight = policy.prior_weight * 2.0 / measured.len() as f64;
            Trend::fit(formula, &mut points, &promises(assumed, ranges, weight))
        } else {
            None
        };
        let missed = trend.map_or_else(Vec::new, |trend| {
            let places: Vec<SurfacePoint> = points
                .iter()
                .map(|point| SurfacePoint::of(point.size))
                .collect();
            let shares = kriging(&points, &places, SurfacePoint::roughness)
                .solve(points.iter().map(|point| trend.residual(point)));
            places.into_iter().zip(shares).collect()
        });
        let mut speed = Self {
            assumed,
            trend,
            missed,
            largest: largest_of(&measured),
            measured,
            known,
            covariance,
            curve: None,
            mean_relative_error: None,
        };
        speed.mean_relative_error = speed.error();
        speed
    }

    /// Returns steps per second; updates per second if the batch grows. Never 0.
    pub(crate) fn steps_per_s(&self, workers: u32, ps_shards: u32) -> f64 {
        let size = (workers, ps_shards);
        let curve = self.curve.as_ref();
        let along = curve.and_then(|curve| curve.local.get(workers.saturating_sub(1) as usize));
        if let Some(speed) = along.filter(|speed| **speed > 0.0) {
            return *speed;
        }
        let step_s = match self.measured.get(&size) {
            Some(&(measured_s, trust)) if trust >= 1.0 => measured_s,
            Some(&(measured_s, trust)) => {
                trust * measured_s + (1.0 - trust) * self.modelled_s(size)
            }
            None => self.modelled_s(size),
        };
        1.0 / step_s.max(1e-9)
    }

    /// Returns the standard error of the logarithm of the speed at a size: 0.1 is about 10 %.
    pub(crate) fn standard_error(&self, workers: u32, ps_shards: u32) -> f64 {
        let place = SurfacePoint::of((workers, ps_shards));
        let explained = self
            .covariance
            .forward(self.known.iter().map(|known| known.covariance(&place)));
        let left = place.covariance(&place) - explained.iter().map(|part| part * part).sum::<f64>();
        left.max(0.0).sqrt()
    }

    /// Returns the number of measured sizes.
    pub(crate) fn points(&self) -> u32 {
        u32::try_from(self.measured.len()).unwrap_or(u32::MAX)
    }

    /// Returns the largest measured number of workers and of shards. `None` before the job's own
    /// first measurement: it may start at any size.
    pub(crate) fn largest_measured(&self) -> Option<Size> {
        self.largest
    }

    /// Returns the fitted coefficients in the order of the formula.
    pub(crate) fn coefficients(&self) -> Vec<f64> {
        self.trend
            .map_or_else(Vec::new, |trend| trend.coefficients())
    }

    /// Returns the seconds per step by the model, also at measured sizes.
    fn modelled_s(&self, size: Size) -> f64 {
        let Some(trend) = &self.trend else {
            return self.assumed.step_s(size);
        };
        let place = SurfacePoint::of(size);
        let missed: f64 = self
            .missed
            .iter()
            .map(|(at, share)| share * place.roughness(at))
            .sum();
        trend.step_s(size) * missed.exp()
    }

    /// Returns the seconds per step by the formula alone.
    fn formula_s(&self, size: Size) -> f64 {
        match &self.trend {
            Some(trend) => trend.step_s(size),
            None => self.assumed.step_s(size),
        }
    }

    /// Returns the mean relative error of the formula alone. Kriging follows the measured sizes, so
    /// its error would say nothing.
    fn error(&self) -> Option<f64> {
        if self.measured.is_empty() {
            return None;
        }

        let sum: f64 = self
            .measured
            .iter()
            .map(|(&size, &(step_s, _))| (step_s / self.formula_s(size) - 1.0).abs())
            .sum();
        Some(sum / self.measured.len() as f64)
    }
}

fn formula(job: &SnapshotJob) -> Formula {
    Formula {
        synchronous: job.consistency.is_bulk_synchronous(),
        batch: f64::from(job.batch),
        fixed_part: job.batch_grows_with_workers().then_some(job.workers.min),
    }
}

fn largest_of(measured: &BTreeMap<Size, (f64, f64)>) -> Option<Size> {
    let workers = measured.keys().map(|size| size.0).max()?;
    let ps_shards = measured.keys().map(|size| size.1).max()?;
    Some((workers, ps_shards))
}

/// Returns the assumed curve at the ends and in the middle of the job's ranges, as points of the
/// fit.
fn promises(
    assumed: Assumed,
    (workers, ps_shards): (Range, Range),
    weight: f64,
) -> Vec<StepTimePoint> {
    [workers.min, workers.max.div_ceil(2), workers.max]
        .into_iter()
        .flat_map(|w| [(w, ps_shards.min), (w, ps_shards.max)])
        .filter(|_| weight > 0.0)
        .map(|size| StepTimePoint {
            size,
            step_s: assumed.step_s(size),
            weight,
        })
        .collect()
}

/// Returns the covariance of measurements: the one of their sizes, plus independent noise that
/// falls with their trust.
fn kriging(
    points: &[StepTimePoint],
    places: &[SurfacePoint],
    covariance: impl Fn(&SurfacePoint, &SurfacePoint) -> f64,
) -> Cholesky {
    Cholesky::of(points.len(), |i, j| {
        let noise = if i == j {
            NOISE / points[i].weight
        } else {
            0.0
        };
        covariance(&places[i], &places[j]) + noise * noise
    })
}

#[cfg(test)]
mod tests;
