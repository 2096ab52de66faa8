//! Probability that a learning curve reaches a target (after Domhan et al., IJCAI 2015). Several
//! families of curves extrapolate the curve, and each is weighted by its evidence.
//!
//! The paper samples the parameters with Markov chains. Here the shape parameters of a family and
//! the noise have the values of a grid. Scale and asymptote then have exact normal posteriors. The
//! answer is a weighted mean over the grid and has no randomness.

use crate::numeric::{cdf, log_density};
use crate::trial::SearchTrial;

/// Losses by step, in ascending order of steps.
#[derive(Debug, Clone, PartialEq)]
pub struct LearningCurve {
    /// Pairs of step and loss.
    pub points: Vec<(f64, f64)>,
}

impl LearningCurve {
    /// Returns the losses of a trial's first objective.
    #[must_use]
    pub fn of(trial: &SearchTrial) -> Self {
        let points = trial.reports.iter().map(|r| (r.step as f64, r.losses[0]));
        Self {
            points: points.collect(),
        }
    }

    /// Smallest loss; infinite without points.
    fn best(&self) -> f64 {
        self.points
            .iter()
            .map(|p| p.1)
            .fold(f64::INFINITY, f64::min)
    }
}

/// Shape that falls from 1 towards 0. Its argument is the step relative to the last observed one.
#[derive(Clone, Copy)]
enum CurveShape {
    /// `(1 + 20 x)^-power`
    Power(f64),
    /// `exp(-rate x)`
    Exponential(f64),
    /// `1 / (1 + (x / half)^slope)`
    Hill(f64, f64),
}

/// Prior means and deviations of `asymptote` and `scale` in `asymptote + scale * shape`. The curve
/// is shifted so that the last loss is 0; the unit is the range of the observed losses.
const PRIOR: [(f64, f64); 2] = [(-0.2, 1.0), (1.0, 2.0)];
/// Grid of the standard deviation of one report's noise, in the same unit.
const NOISE: [f64; 6] = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2];

/// Probability (0 to 1) that the loss is at most `target` at step `at` or earlier. Returns 1 if a
/// point has reached the target, and otherwise 0.5 for fewer than two points.
#[must_use]
pub fn chance_to_reach(curve: &LearningCurve, at: f64, target: f64) -> f64 {
    if curve.best() <= target {
        return 1.0;
    }
    let count = curve.points.len();
    if count < 2 {
        return 0.5;
    }
    let last = curve.points[count - 1].1;
    let least = curve.best();
    let most = curve.points.iter().map(|p| p.1).fold(f64::MIN, f64::max);
    let unit = (most - least).max(1e-9 * (1.0 + most.abs()));
    let end = curve.points[count - 1].0.max(1.0);
    let rows: Vec<(f64, f64)> = curve
        .points
        .iter()
        .map(|(x, y)| (x / end, (y - last) / unit))
        .collect();
    let wanted = (target - last) / unit;
    let mut beliefs = Vec::new();
    for shape in shapes() {
        for noise in NOISE {
            beliefs.push(believe(&rows, shape, noise, at / end, wanted));
        }
    }
    let most = beliefs.iter().map(|b| b.0).fold(f64::MIN, f64::max);
    let (weight, sum) = beliefs.iter().fold((0.0, 0.0), |(weight, sum), belief| {
        let w = (belief.0 - most).exp();
        (weight + w, sum + w * belief.1)
    });
    (sum / weight).clamp(0.0, 1.0)
}

/// Grid of shapes.
fn shapes() -> Vec<CurveShape> {
    let mut shapes = Vec::new();
    for i in 0..12 {
        let t = f64::from(i) / 11.0;
        shapes.push(CurveShape::Power(0.1 * 30f64.powf(t)));
        shapes.push(CurveShape::Exponential(0.3 * 50f64.powf(t)));
    }
    for half in [0.05, 0.15, 0.5, 1.5] {
        for slope in [0.7, 1.5, 3.0] {
            shapes.push(CurveShape::Hill(half, slope));
        }
    }
    shapes
}

impl CurveShape {
    /// Value at `x` times the last observed step.
    fn at(self, x: f64) -> f64 {
        match self {
            Self::Power(power) => (1.0 + 20.0 * x).powf(-power),
            Self::Exponential(rate) => (-rate * x).exp(),
            Self::Hill(half, slope) => 1.0 / (1.0 + (x / half).powf(slope)),
        }
    }
}

/// Returns the log evidence of one shape and noise, and the probability that the loss is at most
/// `wanted` at `x`. Both follow from Bayesian linear regression on asymptote and scale. `rows` are
/// pairs of scaled step and loss. A constant that all shapes share is left out of the evidence.
fn believe(rows: &[(f64, f64)], shape: CurveShape, noise: f64, x: f64, wanted: f64) -> (f64, f64) {
    let precision = 1.0 / (noise * noise);
    let [(m0, s0), (m1, s1)] = PRIOR;
    let (p0, p1) = (1.0 / (s0 * s0), 1.0 / (s1 * s1));
    let (mut a00, mut a01, mut a11) = (p0, 0.0, p1);
    let (mut b0, mut b1) = (p0 * m0, p1 * m1);
    for (x, y) in rows {
        let g = shape.at(*x);
        a00 += precision;
        a01 += precision * g;
        a11 += precision * g * g;
        b0 += precision * y;
        b1 += precision * g * y;
    }
    let determinant = a00 * a11 - a01 * a01;
    let asymptote = (a11 * b0 - a01 * b1) / determinant;
    let scale = (a00 * b1 - a01 * b0) / determinant;
    let mut evidence = 0.5 * (p0.ln() + p1.ln() - determinant.ln());
    evidence += log_density((asymptote - m0) / s0) + log_density((scale - m1) / s1);
    for (x, y) in rows {
        let miss = (y - asymptote - scale * shape.at(*x)) / noise;
        evidence += log_density(miss) - noise.ln();
    }
    // A rising line is not a learning curve; it counts as flat.
    let g = if scale > 0.0 {
        shape.at(x)
    } else {
        shape.at(1.0)
    };
    let mean = asymptote + scale * g;
    let variance = (a11 - 2.0 * a01 * g + a00 * g * g) / determinant + noise * noise;
    (evidence, cdf((wanted - mean) / variance.sqrt()))
}
