//! How alike a job's speeds at two sizes are, before anything is measured: the covariance of their logarithms, in the manner of
//! kriging (Sacks et al., Statistical Science 1989).
//!
//! A smooth part says what shapes speed surfaces of parameter-server jobs have; a rough part what no smooth formula has: a number
//! of shards or workers that happens to fall well or badly on the servers, and neighbourhoods that do. The deviations are rounded
//! from what 803 measured configurations of eight networks (Peng et al.) show, and relative: 0.05 is five per cent.

/// Workers and shards.
pub(super) type Size = (u32, u32);

/// By how much a measured speed misses the mean of many such measurements.
pub(super) const NOISE: f64 = 0.05;

/// Deviation of the level: nothing is known of it.
const LEVEL: f64 = 1.0;
/// Deviations of the smooth terms, in the order of [`Place::smooth`].
const SMOOTH: [f64; 4] = [0.75, 1.0, 0.5, 0.4];
/// Deviation of each rough term.
const ROUGH: f64 = 0.05;

/// A size where the covariance sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    ln_w: f64,
    ln_p: f64,
    /// Each times its deviation: the contention of workers for a shard, the share of the work that workers divide, the size as
    /// a whole, and the shards.
    smooth: [f64; 4],
}

impl Place {
    pub(super) fn of((workers, ps_shards): Size) -> Self {
        let (w, p) = (f64::from(workers.max(1)), f64::from(ps_shards.max(1)));
        let (ln_w, ln_p) = (w.ln(), p.ln());
        let terms = [(w / p).ln_1p(), 1.0 / w, ln_w * ln_p, ln_p];
        Self {
            ln_w,
            ln_p,
            smooth: std::array::from_fn(|i| terms[i] * SMOOTH[i]),
        }
    }

    pub(super) fn covariance(&self, other: &Self) -> f64 {
        let shapes = self.smooth.iter().zip(&other.smooth);
        LEVEL * LEVEL + shapes.map(|(a, b)| a * b).sum::<f64>() + self.roughness(other)
    }

    /// The rough part alone: bells of width 1/2 in both logarithms together, and of width 1/4 in either.
    pub(super) fn roughness(&self, other: &Self) -> f64 {
        let bell = |a: f64, b: f64| (-2.0 * (a - b) * (a - b)).exp();
        let (by_w, by_p) = (bell(self.ln_w, other.ln_w), bell(self.ln_p, other.ln_p));
        // A bell of half the width is the fourth power.
        ROUGH * ROUGH * (by_w * by_p + by_w.powi(4) + by_p.powi(4))
    }
}

/// The lower triangle `L` of a positive definite matrix `L L'`, row by row.
#[derive(Debug, Clone)]
pub(super) struct Cholesky {
    rows: Vec<Vec<f64>>,
}

impl Cholesky {
    /// Of the matrix with the entries `entry(i, j)`, `j <= i < size`.
    pub(super) fn of(size: usize, entry: impl Fn(usize, usize) -> f64) -> Self {
        let mut rows: Vec<Vec<f64>> = Vec::with_capacity(size);
        for i in 0..size {
            let mut row = Vec::with_capacity(i + 1);
            for (j, above) in rows.iter().enumerate() {
                let known: f64 = above.iter().zip(&row).map(|(a, b)| a * b).sum();
                row.push((entry(i, j) - known) / above[j]);
            }
            let known: f64 = row.iter().map(|a| a * a).sum();
            row.push((entry(i, i) - known).max(f64::MIN_POSITIVE).sqrt());
            rows.push(row);
        }
        Self { rows }
    }

    /// `L^-1 b`.
    pub(super) fn forward(&self, b: impl IntoIterator<Item = f64>) -> Vec<f64> {
        let mut x: Vec<f64> = Vec::with_capacity(self.rows.len());
        for (row, b) in self.rows.iter().zip(b) {
            let known: f64 = row.iter().zip(&x).map(|(a, x)| a * x).sum();
            x.push((b - known) / row[x.len()]);
        }
        x
    }

    /// `(L L')^-1 b`.
    pub(super) fn solve(&self, b: impl IntoIterator<Item = f64>) -> Vec<f64> {
        let mut x = self.forward(b);
        for i in (0..x.len()).rev() {
            let known: f64 = (i + 1..x.len()).map(|k| self.rows[k][i] * x[k]).sum();
            x[i] = (x[i] - known) / self.rows[i][i];
        }
        x
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cholesky_solves_what_it_factored() {
        let matrix = [[4.0, 2.0, 0.6], [2.0, 5.0, 1.0], [0.6, 1.0, 3.0]];
        let x = Cholesky::of(3, |i, j| matrix[i][j]).solve([1.0, 2.0, 3.0]);
        for (row, b) in matrix.iter().zip([1.0, 2.0, 3.0]) {
            let product: f64 = row.iter().zip(&x).map(|(a, x)| a * x).sum();
            assert!((product - b).abs() < 1e-12, "{x:?}");
        }
    }

    #[test]
    fn a_size_is_most_like_itself_and_less_like_one_further_away() {
        let here = Place::of((4, 4));
        let rough = |size| here.roughness(&Place::of(size));
        assert!(rough((4, 4)) > rough((5, 4)) && rough((5, 4)) > rough((9, 9)));
        assert!((rough((4, 4)) - 3.0 * ROUGH * ROUGH).abs() < 1e-15);
    }
}
