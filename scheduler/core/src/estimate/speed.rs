//! How fast a job runs with `w` workers and `p` shards: Optimus' speed model (Peng et al., EuroSys 2018, section 3.2).
//!
//! Synchronous: `f = 1 / (th0 M/w + th1 + th2 w/p + th3 w + th4 p)`; asynchronous: `f = w / (th0 + th1 w/p + th2 w + th3 p)`; all
//! `th >= 0`, `M` the global batch. Fitted by non-negative least squares on the relative error, because slow and fast sizes matter
//! alike. A size that was measured is taken as measured.
//!
//! Before two sizes are known the curve is assumed to be Amdahl's, which always promises something for one worker more: so a job
//! explores, and what it then measures replaces the promise. Beside measured sizes the assumed curve stays in the fit with
//! little weight, so that two points do not promise wonders far from them.

use super::nnls;
use crate::policy::Policy;
use crate::snapshot::{Job, SpeedPoint};
use muster_model::spec::Consistency;
use std::collections::BTreeMap;

const TERMS: usize = 5;

/// A job's speed at every size.
#[derive(Debug, Clone)]
pub(crate) struct Speed {
    synchronous: bool,
    batch: f64,
    /// Of the assumed curve: seconds a step of one worker with one shard.
    base_s: f64,
    serial_share: f64,
    exchange_share: f64,
    /// `None` while fewer than two sizes are known.
    coefficients: Option<[f64; TERMS]>,
    /// Seconds a step as measured, with how far that is trusted, 0 to 1.
    measured: BTreeMap<(u32, u32), (f64, f64)>,
    pub mean_relative_error: Option<f64>,
}

impl Speed {
    pub(crate) fn of(job: &Job, policy: &Policy) -> Self {
        let usable = |point: &&SpeedPoint| {
            point.steps_per_s.is_finite()
                && point.steps_per_s > 0.0
                && point.samples > 0
                && point.workers > 0
                && point.ps_shards > 0
        };
        let full = policy.full_weight_samples.max(1) as f64;
        let measured: BTreeMap<(u32, u32), (f64, f64)> = job
            .speeds
            .iter()
            .filter(usable)
            .map(|point| {
                let trust = (point.samples as f64 / full).min(1.0);
                (
                    (point.workers, point.ps_shards),
                    (1.0 / point.steps_per_s, trust),
                )
            })
            .collect();
        let mut speed = Self {
            synchronous: job.consistency == Consistency::Bsp,
            batch: f64::from(job.batch),
            base_s: 1.0 / policy.prior_steps_per_s,
            serial_share: policy.prior_serial_share,
            exchange_share: policy.prior_exchange_share,
            coefficients: None,
            measured,
            mean_relative_error: None,
        };
        speed.rescale();
        if speed.measured.len() >= 2 {
            speed.fit(job, policy.prior_weight);
        }
        speed.mean_relative_error = speed.error();
        speed
    }

    /// Steps per second; never 0.
    pub(crate) fn steps_per_s(&self, workers: u32, ps_shards: u32) -> f64 {
        let modelled_s = self.modelled_s(workers, ps_shards);
        let step_s = match self.measured.get(&(workers, ps_shards)) {
            None => modelled_s,
            Some(&(measured_s, trust)) => trust * measured_s + (1.0 - trust) * modelled_s,
        };
        1.0 / step_s.max(1e-9)
    }

    /// Sizes that were measured.
    pub(crate) fn points(&self) -> u32 {
        u32::try_from(self.measured.len()).unwrap_or(u32::MAX)
    }

    /// The largest measured number of workers and of shards.
    pub(crate) fn largest_measured(&self) -> Option<(u32, u32)> {
        let workers = self.measured.keys().map(|size| size.0).max()?;
        let ps_shards = self.measured.keys().map(|size| size.1).max()?;
        Some((workers, ps_shards))
    }

    /// The fitted coefficients in the order of the formula.
    pub(crate) fn coefficients(&self) -> Vec<f64> {
        let terms = if self.synchronous { TERMS } else { TERMS - 1 };
        self.coefficients
            .map_or_else(Vec::new, |found| found[..terms].to_vec())
    }

    /// Seconds a step by the model, whatever was measured at that size.
    fn modelled_s(&self, workers: u32, ps_shards: u32) -> f64 {
        match self.coefficients {
            None => self.assumed_s(workers, ps_shards),
            Some(found) => {
                let (terms, speedup) = self.terms(workers, ps_shards);
                terms
                    .iter()
                    .zip(found)
                    .map(|(term, th)| term * th)
                    .sum::<f64>()
                    / speedup
            }
        }
    }

    /// Amdahl's law for the workers, and a part of the exchange that more shards shorten.
    fn assumed_s(&self, workers: u32, ps_shards: u32) -> f64 {
        let parallel = 1.0 - self.serial_share - self.exchange_share;
        self.base_s
            * (parallel / f64::from(workers.max(1))
                + self.serial_share
                + self.exchange_share / f64::from(ps_shards.max(1)))
    }

    /// Moves the assumed curve onto what was measured.
    fn rescale(&mut self) {
        let (sum, weight) =
            self.measured
                .iter()
                .fold((0.0, 0.0), |(sum, weight), (size, point)| {
                    (
                        sum + point.1 * point.0 / self.assumed_s(size.0, size.1),
                        weight + point.1,
                    )
                });
        if weight > 0.0 {
            self.base_s *= sum / weight;
        }
    }

    /// The terms of the formula, and the numerator of the speed.
    fn terms(&self, workers: u32, ps_shards: u32) -> ([f64; TERMS], f64) {
        let (w, p) = (f64::from(workers.max(1)), f64::from(ps_shards.max(1)));
        if self.synchronous {
            ([self.batch / w, 1.0, w / p, w, p], 1.0)
        } else {
            ([1.0, w / p, w, p, 0.0], w)
        }
    }

    fn fit(&mut self, job: &Job, prior_weight: f64) {
        let row = |size: (u32, u32), step_s: f64, weight: f64| {
            let (terms, speedup) = self.terms(size.0, size.1);
            let per_unit = weight / (step_s * speedup);
            (terms.map(|term| term * per_unit), weight)
        };
        let measured = self
            .measured
            .iter()
            .map(|(&size, &(step_s, trust))| row(size, step_s, trust.sqrt()));
        let sizes = [
            job.workers.min,
            job.workers.max.div_ceil(2),
            job.workers.max,
        ];
        let assumed = sizes
            .into_iter()
            .flat_map(|w| [(w, job.ps_shards.min), (w, job.ps_shards.max)])
            .filter(|_| prior_weight > 0.0)
            .map(|size| row(size, self.assumed_s(size.0, size.1), prior_weight));
        let rows: Vec<_> = measured.chain(assumed).collect();
        let found = nnls::solve(&rows);
        if found.iter().any(|&th| th > 0.0) {
            self.coefficients = Some(found);
        }
    }

    fn error(&self) -> Option<f64> {
        if self.measured.is_empty() {
            return None;
        }
        let sum: f64 = self
            .measured
            .iter()
            .map(|(&(w, p), &(step_s, _))| (step_s / self.modelled_s(w, p) - 1.0).abs())
            .sum();
        Some(sum / self.measured.len() as f64)
    }
}
