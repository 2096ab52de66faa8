//! Loss curve of Optimus and its confidence region (Peng et al., EuroSys 2018, section 3.1):
//! `loss(k) = 1 / (b0 k + b1) + b2` with all `b >= 0`.
//!
//! For a given asymptote `b2` the curve is fitted by the Gauss-Newton method. Each step is a
//! non-negative least squares problem in `b0` and `b1` with a closed-form solution. The asymptote
//! is searched on a grid. The grid also gives the confidence region: few epochs determine the
//! asymptote least, so the curves whose asymptote fits nearly as well are the plausible ones
//! (profile likelihood of `b2`).

/// Minimum number of losses for a fit.
pub(super) const FEWEST: usize = 3;
/// Number of asymptotes tried between 0 and the mean of the newest losses.
const COARSE: u32 = 16;
/// Number of intervals of the second grid, from one coarse step below the best asymptote to one
/// above it.
const FINE: u32 = 12;
/// Maximum number of Gauss-Newton steps.
const NEWTON_STEPS: u32 = 4;
/// Relative reduction of the error below which the iteration ends.
const ENOUGH: f64 = 1e-3;

/// Coefficients of `loss(k) = 1 / (b0 k + b1) + b2`, with `k` in epochs.
#[derive(Debug, Clone, Copy)]
pub(super) struct LossCurve {
    pub b0: f64,
    pub b1: f64,
    pub b2: f64,
}

/// Result of a fit.
#[derive(Debug, Clone)]
pub(super) struct LossCurveFit {
    pub best: LossCurve,
    /// All tried curves that the losses do not rule out at 80 % confidence, including the best one.
    pub plausible: Vec<LossCurve>,
}

/// Loss with the weight of its residual.
#[derive(Debug, Clone, Copy)]
struct LossPoint {
    epoch: f64,
    loss: f64,
    weight: f64,
}

impl LossCurve {
    pub(super) fn loss(self, epoch: u64) -> f64 {
        // Epochs are far below 2^52.
        self.at(epoch as f64)
    }

    fn at(self, epoch: f64) -> f64 {
        1.0 / (self.b0 * epoch + self.b1) + self.b2
    }

    /// Returns the derivatives by `b0`, `b1` and `b2`.
    fn slopes(self, epoch: f64) -> [f64; 3] {
        let above = 1.0 / (self.b0 * epoch + self.b1);
        [-epoch * above * above, -above * above, 1.0]
    }
}

/// Fits pairs of epoch and loss: ascending epochs, positive and finite losses. Returns `None` if
/// there are fewer than [`FEWEST`] or they do not fall.
pub(super) fn fit(losses: &[(u64, f64)]) -> Option<LossCurveFit> {
    if losses.len() < FEWEST {
        return None;
    }
    let points = weighted(&without_outliers(losses));
    // The curve is above its asymptote, so the mean of the newest losses is too.
    let newest = &points[points.len() - points.len().div_ceil(3)..];
    let top = newest.iter().map(|point| point.loss).sum::<f64>() / newest.len() as f64;
    let step = top / f64::from(COARSE);
    let mut tried: Vec<(LossCurve, f64)> = (0..COARSE)
        .filter_map(|i| with_asymptote(&points, step * f64::from(i)))
        .collect();
    let (about, _) = best_of(&tried)?;
    let from = (about.b2 - step).max(0.0);
    let fine = 2.0 * step / f64::from(FINE);
    tried.extend((0..=FINE).filter_map(|i| with_asymptote(&points, from + fine * f64::from(i))));
    let (best, least) = best_of(&tried)?;
    let allowed = least + allowance(&points, best);
    let plausible = tried
        .into_iter()
        .filter(|&(_, error)| error <= allowed)
        .map(|(curve, _)| curve)
        .collect();
    Some(LossCurveFit { best, plausible })
}

/// Returns the curve with the smallest error.
fn best_of(tried: &[(LossCurve, f64)]) -> Option<(LossCurve, f64)> {
    tried.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1))
}

/// Weights the residuals of three equal segments by 1, 4 and 16, as in the Optimus prototype. The
/// newest losses are the most informative.
fn weighted(losses: &[(u64, f64)]) -> Vec<LossPoint> {
    let count = losses.len();
    losses
        .iter()
        .enumerate()
        .map(|(i, &(epoch, loss))| LossPoint {
            epoch: epoch as f64,
            loss,
            weight: [1.0, 4.0, 16.0][3 * i / count],
        })
        .collect()
}

/// Replaces a loss above 1.5 times both neighbours, or below both divided by 1.5, with their mean.
/// The newest loss is replaced by the one before it, and only if it jumps up. A steep fall at the
/// start of training is no outlier.
fn without_outliers(losses: &[(u64, f64)]) -> Vec<(u64, f64)> {
    const FACTOR: f64 = 1.5;
    let mut clean = losses.to_vec();
    let last = losses.len() - 1;
    for (i, point) in clean.iter_mut().enumerate().take(last).skip(1) {
        let (before, after) = (losses[i - 1].1, losses[i + 1].1);
        let (low, high) = (before.min(after), before.max(after));
        if point.1 > FACTOR * high || point.1 * FACTOR < low {
            point.1 = f64::midpoint(low, high);
        }
    }
    let before = losses[last - 1].1;
    if losses[last].1 > FACTOR * before.max(losses[last - 2].1) {
        clean[last].1 = before;
    }
    clean
}

/// Returns the best falling curve with this asymptote, and its weighted squared error.
fn with_asymptote(points: &[LossPoint], b2: f64) -> Option<(LossCurve, f64)> {
    // Start of the iteration: 1 / (loss - b2) is linear in b0 and b1. A loss that noise puts below
    // the asymptote counts as just above.
    let highest = points.iter().map(|point| point.loss).fold(0.0, f64::max);
    let least_above = (highest - b2) * 0.01;
    let [b0, b1] = non_negative(points.iter().map(|point| {
        let above = (point.loss - b2).max(least_above);
        // d(1/y) = dy / y^2: with this factor the rows measure the error of the loss.
        let weight = point.weight * above * above;
        ([weight * point.epoch, weight], weight / above)
    }));
    let mut found = LossCurve { b0, b1, b2 };
    let mut error = squared_error(points, found);
    for _ in 0..NEWTON_STEPS {
        let [b0, b1] = non_negative(points.iter().map(|point| {
            let [by_b0, by_b1, _] = found.slopes(point.epoch).map(|by| by * point.weight);
            let residual = (point.loss - found.at(point.epoch)) * point.weight;
            let target = by_b0 * found.b0 + by_b1 * found.b1 + residual;
            ([by_b0, by_b1], target)
        }));
        let next = LossCurve { b0, b1, b2 };
        let next_error = squared_error(points, next);
        let better = next_error < error;
        let enough = next_error > error * (1.0 - ENOUGH);
        if better {
            (found, error) = (next, next_error);
        }
        if !better || enough {
            break;
        }
    }
    (found.b0 > 0.0 && error.is_finite()).then_some((found, error))
}

/// Returns the `x >= 0` that minimises `|A x - b|` over rows of two columns. Either both are
/// positive and solve the normal equations, or one is 0 and the other is the better single column.
fn non_negative(rows: impl Iterator<Item = ([f64; 2], f64)>) -> [f64; 2] {
    let (mut aa, mut ab, mut bb, mut ar, mut br) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for ([a, b], right) in rows {
        aa += a * a;
        ab += a * b;
        bb += b * b;
        ar += a * right;
        br += b * right;
    }
    let determinant = aa * bb - ab * ab;
    if determinant > aa * bb * 1e-14 {
        let both = [
            (ar * bb - br * ab) / determinant,
            (br * aa - ar * ab) / determinant,
        ];
        if both.iter().all(|&x| x >= 0.0) {
            return both;
        }
    }
    // Reduction of the squared error by each column alone.
    let (by_a, by_b) = (ar.max(0.0).powi(2) * bb, br.max(0.0).powi(2) * aa);
    if by_a >= by_b {
        [ar.max(0.0) / aa, 0.0]
    } else {
        [0.0, br.max(0.0) / bb]
    }
}

/// Returns the weighted squared error.
fn squared_error(points: &[LossPoint], curve: LossCurve) -> f64 {
    points
        .iter()
        .map(|point| (point.weight * (curve.at(point.epoch) - point.loss)).powi(2))
        .sum()
}

/// Returns the amount by which the weighted error may exceed the least one at 80 % confidence.
///
/// If every weight matched the noise of its residual, this would be the variance of the noise times
/// the square of Student's t. The weights favour the newest losses instead, and noise tends to fall
/// with the loss. The variance of the asymptote is therefore the sandwich estimator (Huber 1967)
/// with residuals corrected by their leverage (HC2, MacKinnon and White 1985). An asymptote that is
/// off by `d` raises the least error by `d^2 / inverse[2][2]`.
fn allowance(points: &[LossPoint], best: LossCurve) -> f64 {
    let freedom = (points.len().saturating_sub(3)).max(1) as f64;
    // Student's t, two-sided 80 %, by the first term of Fisher's expansion about the normal
    // quantile.
    const NORMAL: f64 = 1.2816;
    let student = NORMAL * (1.0 + (NORMAL * NORMAL + 1.0) / (4.0 * freedom));
    let rows: Vec<[f64; 3]> = points
        .iter()
        .map(|point| best.slopes(point.epoch).map(|by| by * point.weight))
        .collect();
    let Some(inverse) = inverse_gram(&rows) else {
        // The losses do not separate the coefficients, so no curve is ruled out.
        return f64::INFINITY;
    };
    let spread: f64 = points
        .iter()
        .zip(&rows)
        .map(|(point, row)| {
            let along = inverse.map(|line| dot(&line, row));
            let leverage = dot(&along, row).min(0.99);
            let residual = point.weight * (best.at(point.epoch) - point.loss);
            (residual * along[2]).powi(2) / (1.0 - leverage)
        })
        .sum();
    student * student * spread / inverse[2][2]
}

fn dot(a: &[f64; 3], b: &[f64; 3]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Returns the inverse of `rows' rows` by cofactors, or `None` if it is numerically singular.
fn inverse_gram(rows: &[[f64; 3]]) -> Option<[[f64; 3]; 3]> {
    let [aa, ab, ac, bb, bc, cc] = [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)]
        .map(|(i, j)| rows.iter().map(|row| row[i] * row[j]).sum::<f64>());
    let cofactors = [
        [bb * cc - bc * bc, ac * bc - ab * cc, ab * bc - ac * bb],
        [ac * bc - ab * cc, aa * cc - ac * ac, ab * ac - aa * bc],
        [ab * bc - ac * bb, ab * ac - aa * bc, aa * bb - ab * ab],
    ];
    let determinant = aa * cofactors[0][0] + ab * cofactors[0][1] + ac * cofactors[0][2];
    (determinant > aa * bb * cc * 1e-14).then(|| cofactors.map(|row| row.map(|c| c / determinant)))
}
