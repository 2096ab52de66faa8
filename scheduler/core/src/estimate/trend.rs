//! The formula part of a job's speed: Optimus' model (Peng et al., EuroSys 2018, section 3.2), mended where its measurements
//! disagree with it.
//!
//! Seconds a step. Synchronous: `th0 M/w + th1 + th2 w/p + th3 w + th4/p`; asynchronous: `(th0 + th1 w/p + th2 w + th3 p) / w`; all
//! `th >= 0`, `M` the global batch; where that grows with the workers, `th0` is 0. Optimus' synchronous formula ends in `th4 p` instead: over its authors' own measurements more
//! shards never cost, while a share of the exchange that falls with the shards whatever the workers is missing.
//!
//! Fitted by non-negative least squares on the logarithm, because slow and fast sizes matter alike.

use super::nnls;
use super::surface::Size;

const TERMS: usize = 5;
/// Steps of Gauss and Newton's method from the relative error to the logarithm.
const NEWTON_STEPS: u32 = 3;
/// A point whose speed differs from the trend by more than this factor, seen from the median point, was disturbed.
const DISTURBED: f64 = 2.0;
/// Fewer points than this do not show which of them was disturbed.
const FEWEST_TO_DOUBT: usize = 5;
const MOST_DOUBTED: usize = 2;

/// Which formula.
#[derive(Debug, Clone, Copy)]
pub(super) struct Formula {
    pub synchronous: bool,
    /// Examples per step over all workers together.
    pub batch: f64,
    /// Where the batch grows so that each worker's part of it stays: with so many workers it is `batch`.
    pub fixed_part: Option<u32>,
}

/// A step time with its weight in the fit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point {
    pub size: Size,
    pub step_s: f64,
    /// Of its residual; 1 is a well measured point.
    pub weight: f64,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Trend {
    formula: Formula,
    coefficients: [f64; TERMS],
}

impl Formula {
    /// The terms of the formula, whose weighted sum is the step's seconds.
    fn terms(self, (workers, ps_shards): Size) -> [f64; TERMS] {
        let (w, p) = (f64::from(workers.max(1)), f64::from(ps_shards.max(1)));
        if self.fixed_part.is_some() {
            // A worker's part takes the same time whatever their number: `th1` has it.
            [0.0, 1.0, w / p, w, 1.0 / p]
        } else if self.synchronous {
            [self.batch / w, 1.0, w / p, w, 1.0 / p]
        } else {
            [1.0 / w, 1.0 / p, 1.0, p / w, 0.0]
        }
    }
}

impl Trend {
    /// Through `points`; those of `measured` that turn out to be disturbed are taken out of it. `assumed` are never doubted.
    pub(super) fn fit(
        formula: Formula,
        measured: &mut Vec<Point>,
        assumed: &[Point],
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

    /// In the order of the formula.
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

    /// Logarithm of how much longer a step took than the trend says.
    pub(super) fn residual(&self, point: &Point) -> f64 {
        (point.step_s / self.step_s(point.size)).ln()
    }

    fn through(formula: Formula, measured: &[Point], assumed: &[Point]) -> Option<Self> {
        let points = || measured.iter().chain(assumed);
        // The relative error first: its fit needs no start.
        let relative = |point: &Point| formula.terms(point.size).map(|term| term / point.step_s);
        let rows: Vec<([f64; TERMS], f64)> = points()
            .map(|point| {
                (
                    relative(point).map(|term| term * point.weight),
                    point.weight,
                )
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
            // ln(r + dr) = ln r + dr / r, which is to be 0.
            let rows: Vec<([f64; TERMS], f64)> = points()
                .map(|point| {
                    let ratio = trend.step_s(point.size) / point.step_s;
                    let scale = point.weight / ratio;
                    let target = point.weight * (1.0 - ratio.ln());
                    (relative(point).map(|term| term * scale), target)
                })
                .collect();
            trend.coefficients = nnls::solve(&rows);
        }
        Some(trend)
    }

    /// The measured point that stands out most, if one does.
    fn disturbed(&self, measured: &[Point]) -> Option<usize> {
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
