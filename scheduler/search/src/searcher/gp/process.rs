//! Gaussian process: Matérn 5/2 kernel with one length scale per parameter, fitted by its marginal
//! likelihood under weak priors.

use crate::minimise::minimise;
use muster_model::study::Space;
use nalgebra::{Cholesky, DMatrix, DVector, Dyn};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DistanceKind {
    /// Distances are differences.
    Number,
    /// Equal or different.
    Choice,
}

/// Logarithms of inverse squared length scales, of the scale and of the noise variance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Hyper {
    logs: Vec<f64>,
}

pub(super) struct GaussianProcess {
    pub(super) hyper: Hyper,
    kinds: Vec<DistanceKind>,
    places: Vec<Vec<f64>>,
    targets: Vec<f64>,
    factor: Cholesky<f64, Dyn>,
    /// Inverse covariance times the targets.
    alpha: DVector<f64>,
}

const LEAST_NOISE: f64 = 1e-7;

pub(super) fn kinds(space: &Space) -> Vec<DistanceKind> {
    let kinds = space.dimensions.iter().map(|d| {
        if d.domain.is_ordered() {
            DistanceKind::Number
        } else {
            DistanceKind::Choice
        }
    });
    kinds.collect()
}

/// Squared distance in one parameter: 0 if both points lack it, 1 if only one has it.
fn square(kind: DistanceKind, a: f64, b: f64) -> f64 {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => 0.0,
        (false, false) if kind == DistanceKind::Number => (a - b) * (a - b),
        (false, false) => f64::from(a != b),
        _ => 1.0,
    }
}

/// Matérn 5/2 of a squared distance, and its derivative by the squared distance.
fn matern(squared: f64) -> (f64, f64) {
    let r = (5.0 * squared).sqrt();
    let e = (-r).exp();
    ((1.0 + r + r * r / 3.0) * e, -5.0 / 6.0 * (1.0 + r) * e)
}

impl Hyper {
    fn first(dimensions: usize) -> Self {
        let mut logs = vec![0.0; dimensions];
        logs.extend([0.0, 1e-4f64.ln()]);
        Self { logs }
    }

    fn inverse_squares(&self) -> Vec<f64> {
        let count = self.logs.len() - 2;
        self.logs[..count].iter().map(|l| l.exp()).collect()
    }

    fn scale(&self) -> f64 {
        self.logs[self.logs.len() - 2].exp()
    }

    fn noise(&self) -> f64 {
        self.logs[self.logs.len() - 1].exp() + LEAST_NOISE
    }
}

impl GaussianProcess {
    /// Fits the most likely process, from the last hyperparameters and from default ones. `None` if
    /// no covariance is positive definite.
    pub(super) fn fit(
        kinds: &[DistanceKind],
        places: Vec<Vec<f64>>,
        targets: Vec<f64>,
        last: Option<&Hyper>,
    ) -> Option<Self> {
        let d = kinds.len();
        let squares = squares(kinds, &places);
        let y = DVector::from_column_slice(&targets);
        let mut bounds = vec![((1e-4f64).ln(), (1e5f64).ln()); d];
        bounds.extend([(0.01f64.ln(), 1e4f64.ln()), ((1e-9f64).ln(), 2f64.ln())]);
        let mut best: Option<(f64, Vec<f64>)> = None;
        for start in [last.cloned(), Some(Hyper::first(d))].into_iter().flatten() {
            let found = minimise(start.logs, &bounds, 60, |logs, gradient| {
                unlikelihood(&squares, &y, logs, gradient)
            });
            if found.0.is_finite() && best.as_ref().is_none_or(|b| found.0 < b.0) {
                best = Some(found);
            }
        }
        let hyper = best.map_or_else(|| Hyper::first(d), |(_, logs)| Hyper { logs });
        Self::with(hyper, kinds.to_vec(), places, targets)
    }

    fn with(
        hyper: Hyper,
        kinds: Vec<DistanceKind>,
        places: Vec<Vec<f64>>,
        targets: Vec<f64>,
    ) -> Option<Self> {
        let n = places.len();
        let (inverse, scale, noise) = (hyper.inverse_squares(), hyper.scale(), hyper.noise());
        let covariance = DMatrix::from_fn(n, n, |i, j| {
            let pairs = kinds
                .iter()
                .zip(&inverse)
                .zip(places[i].iter().zip(&places[j]));
            let squared: f64 = pairs.map(|((k, w), (a, b))| w * square(*k, *a, *b)).sum();
            scale * matern(squared).0 + if i == j { noise } else { 0.0 }
        });
        let factor = Cholesky::new(covariance)?;
        let alpha = factor.solve(&DVector::from_column_slice(&targets));
        Some(Self {
            hyper,
            kinds,
            places,
            targets,
            factor,
            alpha,
        })
    }

    /// Adds an observation with the expected value at `place`.
    pub(super) fn believe(&mut self, place: Vec<f64>) {
        let (mean, _) = self.at(&place);
        let mut places = self.places.clone();
        let mut targets = self.targets.clone();
        places.push(place);
        targets.push(mean);
        if let Some(more) = Self::with(self.hyper.clone(), self.kinds.clone(), places, targets) {
            *self = more;
        }
    }

    /// Smallest target.
    pub(super) fn least(&self) -> f64 {
        self.targets.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// Observed places, best first.
    pub(super) fn best_places(&self, count: usize) -> Vec<Vec<f64>> {
        let mut order: Vec<usize> = (0..self.targets.len()).collect();
        order.sort_by(|a, b| self.targets[*a].total_cmp(&self.targets[*b]));
        order
            .iter()
            .take(count)
            .map(|i| self.places[*i].clone())
            .collect()
    }

    /// Length scales of the parameters.
    pub(super) fn lengths(&self) -> Vec<f64> {
        let inverse = self.hyper.inverse_squares();
        inverse.iter().map(|w| 1.0 / w.sqrt()).collect()
    }

    /// Mean and variance at `place`.
    pub(super) fn at(&self, place: &[f64]) -> (f64, f64) {
        let inverse = self.hyper.inverse_squares();
        let scale = self.hyper.scale();
        let k = DVector::from_fn(self.places.len(), |i, _| {
            scale * matern(self.squared(&inverse, place, i)).0
        });
        let mean = k.dot(&self.alpha);
        let half = self.factor.l_dirty().solve_lower_triangular(&k);
        let explained = half.map_or(0.0, |half| half.norm_squared());
        (mean, (scale - explained).max(1e-14 * scale))
    }

    /// Mean, variance, and the gradients of both by the ordered parameters (0 elsewhere).
    pub(super) fn slope(&self, place: &[f64]) -> (f64, f64, Vec<f64>, Vec<f64>) {
        let inverse = self.hyper.inverse_squares();
        let scale = self.hyper.scale();
        let n = self.places.len();
        let mut k = DVector::zeros(n);
        let mut derivative = vec![0.0; n];
        for i in 0..n {
            let (value, by_square) = matern(self.squared(&inverse, place, i));
            k[i] = scale * value;
            derivative[i] = scale * by_square;
        }
        let solved = self.factor.solve(&k);
        let mean = k.dot(&self.alpha);
        let variance = (scale - k.dot(&solved)).max(1e-14 * scale);
        let mut mean_slope = vec![0.0; place.len()];
        let mut variance_slope = vec![0.0; place.len()];
        for (d, kind) in self.kinds.iter().enumerate() {
            if *kind == DistanceKind::Choice || place[d].is_nan() {
                continue;
            }
            for i in 0..n {
                let other = self.places[i][d];
                if other.is_nan() {
                    continue;
                }
                let dk = derivative[i] * inverse[d] * 2.0 * (place[d] - other);
                mean_slope[d] += dk * self.alpha[i];
                variance_slope[d] -= 2.0 * dk * solved[i];
            }
        }
        (mean, variance, mean_slope, variance_slope)
    }

    fn squared(&self, inverse: &[f64], place: &[f64], i: usize) -> f64 {
        let pairs = self
            .kinds
            .iter()
            .zip(inverse)
            .zip(place.iter().zip(&self.places[i]));
        pairs.map(|((k, w), (a, b))| w * square(*k, *a, *b)).sum()
    }
}

/// Squared distances of all pairs, one matrix per parameter.
fn squares(kinds: &[DistanceKind], places: &[Vec<f64>]) -> Vec<DMatrix<f64>> {
    let n = places.len();
    let matrix =
        |d: usize| DMatrix::from_fn(n, n, |i, j| square(kinds[d], places[i][d], places[j][d]));
    (0..kinds.len()).map(matrix).collect()
}

/// Negative logarithm of likelihood times priors, with its gradient. The priors are those of
/// Optuna's GP sampler: moderate lengths, a scale of about 1, small noise.
fn unlikelihood(
    squares: &[DMatrix<f64>],
    y: &DVector<f64>,
    logs: &[f64],
    gradient: &mut [f64],
) -> f64 {
    let d = squares.len();
    let n = y.len();
    let hyper = Hyper {
        logs: logs.to_vec(),
    };
    let (inverse, scale, noise) = (hyper.inverse_squares(), hyper.scale(), hyper.noise());
    let mut squared = DMatrix::<f64>::zeros(n, n);
    for (matrix, weight) in squares.iter().zip(&inverse) {
        squared.zip_apply(matrix, |sum, square| *sum += weight * square);
    }
    let values = squared.map(|s| matern(s).0);
    let mut covariance = &values * scale;
    for i in 0..n {
        covariance[(i, i)] += noise;
    }
    let Some(factor) = Cholesky::new(covariance) else {
        gradient.fill(0.0);
        return f64::INFINITY;
    };
    let alpha = factor.solve(y);
    let log_determinant: f64 = (0..n).map(|i| factor.l_dirty()[(i, i)].ln()).sum();
    let mut value = 0.5 * y.dot(&alpha) + log_determinant;
    // Half of (inverse - alpha alpha'). Its sum with a derivative of the covariance is the
    // gradient.
    let mut weight = factor.inverse();
    for j in 0..n {
        for i in 0..n {
            weight[(i, j)] = 0.5 * (weight[(i, j)] - alpha[i] * alpha[j]);
        }
    }
    let slopes = squared.zip_map(&weight, |s, w| w * scale * matern(s).1);
    for k in 0..d {
        let x = inverse[k];
        value += 0.1 / x + 0.1 * x;
        gradient[k] = x * slopes.dot(&squares[k]) - 0.1 / x + 0.1 * x;
    }
    value += scale - scale.ln();
    gradient[d] = scale * weight.dot(&values) + scale - 1.0;
    let raw = noise - LEAST_NOISE;
    value += 30.0 * noise - 0.1 * noise.ln();
    gradient[d + 1] = raw * (weight.trace() + 30.0 - 0.1 / noise);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> (Vec<DistanceKind>, Vec<Vec<f64>>, Vec<f64>) {
        let places: Vec<Vec<f64>> = (0..12)
            .map(|i| {
                let x = f64::from(i) / 11.0;
                let lacking = if i % 3 == 0 {
                    f64::NAN
                } else {
                    (x * 7.0).fract()
                };
                vec![x, lacking, f64::from(i % 2)]
            })
            .collect();
        let targets = places
            .iter()
            .map(|p| (5.0 * p[0]).sin() + 0.3 * p[2])
            .collect();
        (
            vec![
                DistanceKind::Number,
                DistanceKind::Number,
                DistanceKind::Choice,
            ],
            places,
            targets,
        )
    }

    #[test]
    fn likelihood_gradient_equals_finite_difference() {
        let (kinds, places, targets) = rows();
        let squares = squares(&kinds, &places);
        let y = DVector::from_column_slice(&targets);
        let logs = [0.4, -0.3, 0.2, 0.1, -3.0];
        let mut gradient = vec![0.0; 5];
        unlikelihood(&squares, &y, &logs, &mut gradient);
        for k in 0..5 {
            let [up, down] = [1e-5, -1e-5].map(|shift| {
                let mut logs = logs;
                logs[k] += shift;
                unlikelihood(&squares, &y, &logs, &mut [0.0; 5])
            });
            let slope = (up - down) / 2e-5;
            assert!(
                (slope - gradient[k]).abs() < 1e-5 * (1.0 + slope.abs()),
                "{k}: {slope} {gradient:?}"
            );
        }
    }

    #[test]
    fn posterior_gradient_equals_finite_difference() {
        let (kinds, places, targets) = rows();
        let process = GaussianProcess::fit(&kinds, places, targets, None).expect("positive");
        let place = [0.31, 0.42, 1.0];
        let (mean, variance, mean_slope, variance_slope) = process.slope(&place);
        assert!((mean - process.at(&place).0).abs() < 1e-9);
        assert!((variance - process.at(&place).1).abs() < 1e-9);
        for d in 0..2 {
            let [up, down] = [1e-5, -1e-5].map(|shift| {
                let mut place = place;
                place[d] += shift;
                process.at(&place)
            });
            assert!(((up.0 - down.0) / 2e-5 - mean_slope[d]).abs() < 1e-5);
            assert!(((up.1 - down.1) / 2e-5 - variance_slope[d]).abs() < 1e-5);
        }
    }
}
