//! Prior covariance of the logarithms of a job's speeds at two sizes, as in kriging (Sacks et al.,
//! Statistical Science 1989).
//!
//! A smooth part describes the shapes of speed surfaces of parameter-server jobs. A rough part
//! describes what no smooth formula has: numbers of shards or workers, and their neighbourhoods,
//! that suit the servers well or badly. The deviations are relative (0.05 is 5 %). They are rounded
//! from the measured configurations of eight networks by Peng et al.

/// Workers and shards.
pub(super) type Size = (u32, u32);

/// Relative deviation of one measured speed from the mean of many.
pub(super) const NOISE: f64 = 0.05;

/// Deviation of the level, which is unknown.
const LEVEL: f64 = 1.0;
/// Deviations of the smooth terms, in the order of [`SurfacePoint::smooth`].
const SMOOTH: [f64; 4] = [0.75, 1.0, 0.5, 0.4];
/// Deviation of each rough term.
const ROUGH: f64 = 0.05;

/// Size in the coordinates of the covariance.
#[derive(Debug, Clone, Copy)]
pub(super) struct SurfacePoint {
    ln_w: f64,
    ln_p: f64,
    /// Smooth terms times their deviations: contention of workers for a shard, share of the work
    /// that workers divide, size as a whole, and shards.
    smooth: [f64; 4],
}

impl SurfacePoint {
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

    /// Returns the rough part: a Gaussian of width 1/2 in both logarithms together, and one of
    /// width 1/4 in each.
    pub(super) fn roughness(&self, other: &Self) -> f64 {
        let (by_w, by_p) = (bell(self.ln_w, other.ln_w), bell(self.ln_p, other.ln_p));
        // A Gaussian of half the width is the fourth power.
        ROUGH * ROUGH * (by_w * by_p + by_w.powi(4) + by_p.powi(4))
    }
}

/// Returns a Gaussian of width 1/2 of the distance.
fn bell(a: f64, b: f64) -> f64 {
    (-2.0 * (a - b) * (a - b)).exp()
}

/// Lower triangle `L` of a positive definite matrix `L L'`, by rows.
#[derive(Debug, Clone)]
pub(super) struct Cholesky {
    rows: Vec<Vec<f64>>,
}

impl Cholesky {
    /// Factors the matrix with the entries `entry(i, j)`, `j <= i < size`.
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

    /// Returns `L^-1 b`.
    pub(super) fn forward(&self, b: impl IntoIterator<Item = f64>) -> Vec<f64> {
        let mut x: Vec<f64> = Vec::with_capacity(self.rows.len());
        for (row, b) in self.rows.iter().zip(b) {
            let known: f64 = row.iter().zip(&x).map(|(a, x)| a * x).sum();
            x.push((b - known) / row[x.len()]);
        }
        x
    }

    /// Returns `(L L')^-1 b`.
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
    fn cholesky_solves_factored_system() {
        let matrix = [[4.0, 2.0, 0.6], [2.0, 5.0, 1.0], [0.6, 1.0, 3.0]];
        let x = Cholesky::of(3, |i, j| matrix[i][j]).solve([1.0, 2.0, 3.0]);
        for (row, b) in matrix.iter().zip([1.0, 2.0, 3.0]) {
            let product: f64 = row.iter().zip(&x).map(|(a, x)| a * x).sum();
            assert!((product - b).abs() < 1e-12, "{x:?}");
        }
    }

    #[test]
    fn roughness_falls_with_distance_of_sizes() {
        let here = SurfacePoint::of((4, 4));
        let [same, near, far] =
            [(4, 4), (5, 4), (9, 9)].map(|size| here.roughness(&SurfacePoint::of(size)));
        assert!(same > near && near > far);
        assert!((same - 3.0 * ROUGH * ROUGH).abs() < 1e-15);
    }
}
