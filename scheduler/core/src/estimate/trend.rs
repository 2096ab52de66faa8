//! Formula part of a job's speed: the model of Optimus (Peng et al., EuroSys 2018, section 3.2),
//! with one term corrected where its authors' measurements disagree with it.
//!
//! Seconds per step, with all `th >= 0` and the global batch `M`:
//!
//! - Synchronous: `th0 M/w + th1 + th2 w/p + th3 w + th4/p`.
//! - Asynchronous: `(th0 + th1 w/p + th2 w + th3 p) / w`.
//!
//! If the batch grows with the workers, `th0` is 0. Optimus' synchronous formula ends in `th4 p`
//! instead. In its authors' measurements more shards never cost time. A share of the exchange that
//! falls with the shards, independent of the workers, is missing there.
//!
//! The fit is non-negative least squares on the logarithm, because slow and fast sizes are equally
//! important.

use super::nnls;
use super::surface::Size;

const TERMS: usize = 5;
/// Gauss-Newton steps from the relative error to the logarithm.
const NEWTON_STEPS: u32 = 3;
/// Factor of the deviation from the trend, relative to the median point, beyond which a point is
/// disturbed.
const DISTURBED: f64 = 2.0;
/// Minimum number of points for which a disturbed one can be identified.
const FEWEST_TO_DOUBT: usize = 5;
const MOST_DOUBTED: usize = 2;

/// Formula of a job.
#[derive(Debug, Clone, Copy)]
pub(super) struct Formula {
    pub synchronous: bool,
    /// Examples per step over all workers.
    pub batch: f64,
    /// Number of workers at which the global batch is `batch`, if each worker's part is constant
    /// and the batch grows with them.
    pub fixed_part: Option<u32>,
}

/// Step time with its weight in the fit.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepTimePoint {
    pub size: Size,
    pub step_s: f64,
    /// Weight of the residual; 1 for a well measured point.
    pub weight: f64,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Trend {
    formula: Formula,
    coefficients: [f64; TERMS],
}

impl Formula {
    /// Returns the terms of the formula. Their weighted sum is the seconds per step.
    fn terms(self, (workers, ps_shards): Size) -> [f64; TERMS] {
        let (w, p) = (f64::from(workers.max(1)), f64::from(ps_shards.max(1)));
        if self.fixed_part.is_some() {
            // The time of a worker's part does not depend on the number of workers. `th1` contains
            // it.
            [0.0, 1.0, w / p, w, 1.0 / p]
        } else if self.synchronous {
            [self.batch / w, 1.0, w / p, w, 1.0 / p]
        } else {
            [1.0 / w, 1.0 / p, 1.0, p / w, 0.0]
        }
    }

    /// Returns the terms at a measured size, over the measured step time.
    fn relative_terms(self, point: &StepTimePoint) -> [f64; TERMS] {
        self.terms(point.size).map(|term| term / point.step_s)
    }
}

impl Trend {
    /// Fits the trend. Disturbed points are removed from `measured`; `assumed` points are always
    /// kept.
    pub(super) fn fit(
        formula: Formula,
        measured: &mut Vec<StepTimePoint>,
        assumed: &[StepTimePoint],
    ) -> Option<Self> {
        let mut trend = Self::through(formula, measured, assumed)?;
        for _ in 0..MOST_DOUBTED {
            let Some(disturbed) = trend.disturbed(measured) else {
                break;
            };
            measured.remove(disturbed);
            trend = Self::through(formula, measured, assumed)?;
        }
        Some(trend)
    }

    /// Returns the coefficients in the order of the formula.
    pub(super) fn coefficients(&self) -> Vec<f64> {
        let terms = if self.formula.synchronous {
            TERMS
        } else {
            TERMS - 1
        };
        self.coefficients[..terms].to_vec()
    }

    pub(super) fn step_s(&self, size: Size) -> f64 {
        let terms = self.formula.terms(size);
        let sum: f64 = terms
            .iter()
            .zip(self.coefficients)
            .map(|(term, th)| term * th)
            .sum();
        sum.max(1e-9)
    }

    /// Returns the logarithm of the measured step time over the trend's.
    pub(super) fn residual(&self, point: &StepTimePoint) -> f64 {
        (point.step_s / self.step_s(point.size)).ln()
    }

    fn through(
        formula: Formula,
        measured: &[StepTimePoint],
        assumed: &[StepTimePoint],
    ) -> Option<Self> {
        let points = measured.iter().chain(assumed);
        // The fit of the relative error comes first, because it needs no starting point.
        let rows: Vec<([f64; TERMS], f64)> = points
            .clone()
            .map(|point| {
                let terms = formula.relative_terms(point);
                (terms.map(|term| term * point.weight), point.weight)
            })
            .collect();
        let mut trend = Self {
            formula,
            coefficients: nnls::solve(&rows),
        };
        if trend.coefficients.iter().all(|&th| th <= 0.0) {
            return None;
        }
        for _ in 0..NEWTON_STEPS {
            // ln(r + dr) = ln r + dr / r, with the target 0.
            let rows: Vec<([f64; TERMS], f64)> = points
                .clone()
                .map(|point| {
                    let ratio = trend.step_s(point.size) / point.step_s;
                    let scale = point.weight / ratio;
                    let target = point.weight * (1.0 - ratio.ln());
                    let terms = formula.relative_terms(point);
                    (terms.map(|term| term * scale), target)
                })
                .collect();
            trend.coefficients = nnls::solve(&rows);
        }
        Some(trend)
    }

    /// Returns the measured point with the largest deviation, if it is disturbed.
    fn disturbed(&self, measured: &[StepTimePoint]) -> Option<usize> {
        if measured.len() < FEWEST_TO_DOUBT {
            return None;
        }
        let residuals: Vec<f64> = measured.iter().map(|point| self.residual(point)).collect();
        let mut sorted = residuals.clone();
        sorted.sort_by(f64::total_cmp);
        let median = sorted[sorted.len() / 2];
        residuals
            .iter()
            .map(|residual| (residual - median).abs())
            .enumerate()
            .filter(|&(_, away)| away > DISTURBED.ln())
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(index, _)| index)
    }
}
