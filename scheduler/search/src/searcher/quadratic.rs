//! Quadratic surrogate of recent results (Hansen, A Global Surrogate Assisted CMA-ES, GECCO 2019).
//! CMA-ES uses its values in place of trials as long as it ranks the trials correctly.

use nalgebra::{DMatrix, DVector};

/// Fitted quadratic of the coordinates `z = (place - centre) / unit`.
pub(super) struct Quadratic {
    centre: Vec<f64>,
    unit: f64,
    /// Whether it has products of different coordinates besides squares.
    full: bool,
    /// In the order of [`features`].
    coefficients: DVector<f64>,
}

/// Result of a trial: its place and its loss.
pub(super) struct QuadraticSample {
    pub place: Vec<f64>,
    pub loss: f64,
}

/// Maximum number of rows, the newest ones, from which a quadratic of `n` coordinates is fitted.
pub(super) fn rows_wanted(n: usize) -> usize {
    (n * (n + 3) + 2).max(40)
}

impl Quadratic {
    /// Fits by weighted least squares; rows with a smaller loss weigh more. Products of different
    /// coordinates are left out if there are too few rows for them. `None` if there are too few
    /// rows for squares too, or if they do not determine the coefficients.
    pub(super) fn fit(rows: &[QuadraticSample], centre: &[f64], unit: f64) -> Option<Self> {
        let n = centre.len();
        let all = 1 + n + n * (n + 1) / 2;
        let full = rows.len() as f64 >= 1.1 * all as f64;
        if !full && (rows.len() as f64) < 1.1 * (1 + 2 * n) as f64 {
            return None;
        }
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by(|a, b| rows[*a].loss.total_cmp(&rows[*b].loss));
        let columns = if full { all } else { 1 + 2 * n };
        let mut matrix = DMatrix::zeros(rows.len(), columns);
        let mut wanted = DVector::zeros(rows.len());
        for (rank, &i) in order.iter().enumerate() {
            // Weights from 20 for the best to 1 for the worst, as in the paper.
            let weight = (20.0 - 19.0 * rank as f64 / rows.len() as f64).sqrt();
            for (column, feature) in features(&rows[i].place, centre, unit, full).enumerate() {
                matrix[(rank, column)] = weight * feature;
            }
            wanted[rank] = weight * rows[i].loss;
        }
        let qr = matrix.qr();
        qr.q_tr_mul(&mut wanted);
        let r = qr.r();
        let diagonal = r.diagonal().abs();
        if diagonal.min() <= 1e-10 * diagonal.max() {
            return None;
        }
        let coefficients = r.solve_upper_triangular(&wanted.rows(0, columns).into_owned())?;
        Some(Self {
            centre: centre.to_vec(),
            unit,
            full,
            coefficients,
        })
    }

    /// Value at a place: the predicted loss.
    pub(super) fn at(&self, place: &[f64]) -> f64 {
        let features = features(place, &self.centre, self.unit, self.full);
        features.zip(&self.coefficients).map(|(f, c)| f * c).sum()
    }

    /// Kendall's rank correlation (-1 to 1) between the quadratic and the losses. A tie counts as a
    /// wrong order. Needs at least one row.
    pub(super) fn agreement(&self, rows: &[QuadraticSample]) -> f64 {
        let guessed: Vec<f64> = rows.iter().map(|r| self.at(&r.place)).collect();
        let mut sum = 0.0;
        for i in 0..rows.len() {
            for j in 0..i {
                let product = (guessed[i] - guessed[j]) * (rows[i].loss - rows[j].loss);
                sum += if product > 0.0 { 1.0 } else { -1.0 };
            }
        }
        2.0 * sum / (rows.len() * (rows.len() - 1)).max(1) as f64
    }
}

/// Terms of the quadratic at a place: 1, each `z`, then the products `z[i] z[j]` with `i <= j`. If
/// it is not `full`, the only products are squares.
fn features(place: &[f64], centre: &[f64], unit: f64, full: bool) -> impl Iterator<Item = f64> {
    let z: Vec<f64> = place
        .iter()
        .zip(centre)
        .map(|(x, c)| (x - c) / unit)
        .collect();
    let n = z.len();
    let mut features = Vec::with_capacity(1 + n + n * (n + 1) / 2);
    features.push(1.0);
    features.extend(&z);
    for i in 0..n {
        for j in i..if full { n } else { i + 1 } {
            features.push(z[i] * z[j]);
        }
    }
    features.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bowl(p: &[f64]) -> f64 {
        3.0 + p[0] - 2.0 * p[0] * p[1] + 4.0 * p[1] * p[1] + p[2] * p[2]
    }

    #[test]
    fn fit_recovers_quadratic_and_ranks_its_rows() {
        let rows: Vec<QuadraticSample> = (0..24)
            .map(|i| {
                let steps = [0.819_172_5, 0.671_043_6, 0.549_700_5];
                let place = steps.map(|step| (f64::from(i) * step).fract()).to_vec();
                let loss = bowl(&place);
                QuadraticSample { place, loss }
            })
            .collect();
        let model = Quadratic::fit(&rows, &[0.4, 0.5, 0.6], 0.2).expect("enough rows");
        let place = [0.9, 0.05, 0.3];
        assert!((model.at(&place) - bowl(&place)).abs() < 1e-8);
        assert!(model.agreement(&rows) > 0.99);
    }
}
