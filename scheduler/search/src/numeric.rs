//! Normal distribution with accurate tails.

use statrs::function::erf::erfc;
use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// Normal distribution function.
pub(crate) fn cdf(x: f64) -> f64 {
    0.5 * erfc(-x * FRAC_1_SQRT_2)
}

/// Logarithm of the normal density.
pub(crate) fn log_density(x: f64) -> f64 {
    -0.5 * x * x - 0.5 * (2.0 * PI).ln()
}

/// Logarithm of the normal probability between `a` and `b` (`a < b`), accurate in both tails.
pub(crate) fn log_between(a: f64, b: f64) -> f64 {
    if a > 0.0 {
        return log_between(-b, -a);
    }
    let (low, high) = (log_cdf(a), log_cdf(b));
    high + (-(low - high).exp()).ln_1p()
}

/// Logarithm of the normal distribution function.
pub(crate) fn log_cdf(x: f64) -> f64 {
    if x > -6.0 {
        return cdf(x).ln();
    }
    // Asymptotic series; at -6 five terms leave an error of 1e-6.
    let z = 1.0 / (x * x);
    let series = 1.0 - z * (1.0 - 3.0 * z * (1.0 - 5.0 * z * (1.0 - 7.0 * z * (1.0 - 9.0 * z))));
    log_density(x) - (-x).ln() + series.ln()
}

/// Logarithm of `phi(z) + z Phi(z)`, the expected improvement in units of the deviation (Ament et
/// al., Unexpected Improvements to Expected Improvement).
pub(crate) fn log_improvement(z: f64) -> f64 {
    if z > -25.0 {
        let direct = log_density(z).exp() + z * cdf(z);
        if z > -4.0 {
            return direct.ln();
        }
        // phi(z) (1 - |z| times Mills' ratio), with the ratio from the accurate tail.
        let ratio = (log_cdf(z) - log_density(z)).exp();
        let rest = 1.0 + z * ratio;
        if rest > 1e-9 {
            return log_density(z) + rest.ln();
        }
    }
    log_density(z) - 2.0 * (-z).ln()
}
