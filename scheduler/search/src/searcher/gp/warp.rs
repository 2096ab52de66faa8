//! Transforms losses for a Gaussian process: centred, with deviation 1, and without a long tail of
//! bad trials.

/// Power transform of Yeo and Johnson (2000) at its most likely power, of standardised losses. The
/// order is kept.
pub(super) fn targets(losses: &[f64]) -> Vec<f64> {
    let mut sorted = losses.to_vec();
    sorted.sort_by(f64::total_cmp);
    let median = sorted[sorted.len() / 2];
    // The size of bad losses does not locate good ones. Where training diverges it forms a cliff
    // that no smooth process fits.
    let width = sorted[sorted.len() * 3 / 4] - sorted[sorted.len() / 4];
    // If most losses are equal, a worse one must not become equal too.
    let most = if width > 0.0 {
        median + width
    } else {
        f64::INFINITY
    };
    let capped: Vec<f64> = losses.iter().map(|l| l.min(most)).collect();
    let scaled = standardise(&capped);
    let mut best = (f64::MIN, 1.0);
    for i in 0..=30 {
        let power = -2.0 + 0.1 * f64::from(i);
        let score = likelihood(&scaled, power);
        if score > best.0 {
            best = (score, power);
        }
    }
    let warped: Vec<f64> = scaled.iter().map(|x| warp(*x, best.1)).collect();
    standardise(&warped)
}

fn standardise(values: &[f64]) -> Vec<f64> {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / count;
    let deviation = variance.sqrt().max(1e-300);
    values.iter().map(|v| (v - mean) / deviation).collect()
}

fn warp(x: f64, power: f64) -> f64 {
    if x >= 0.0 {
        if power.abs() < 1e-9 {
            x.ln_1p()
        } else {
            ((1.0 + x).powf(power) - 1.0) / power
        }
    } else {
        let other = 2.0 - power;
        if other.abs() < 1e-9 {
            -(-x).ln_1p()
        } else {
            -((1.0 - x).powf(other) - 1.0) / other
        }
    }
}

fn likelihood(scaled: &[f64], power: f64) -> f64 {
    let count = scaled.len() as f64;
    let warped: Vec<f64> = scaled.iter().map(|x| warp(*x, power)).collect();
    let mean = warped.iter().sum::<f64>() / count;
    let variance = warped.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / count;
    let jacobian: f64 = scaled.iter().map(|x| x.signum() * x.abs().ln_1p()).sum();
    -0.5 * count * variance.max(1e-300).ln() + (power - 1.0) * jacobian
}

#[cfg(test)]
mod tests {
    use super::targets;

    /// Diverging learning rates form a cliff. Its height must not make the good losses look equal.
    #[test]
    fn size_of_bad_losses_does_not_change_targets() {
        let [near, far] = [0.5, 5000.0].map(|bad: f64| {
            let mut losses: Vec<f64> = (0..12).map(|i| 0.20 + 0.01 * f64::from(i)).collect();
            losses.extend([bad; 3]);
            targets(&losses)
        });
        assert_eq!(near, far, "of the bad ones only that they are bad counts");
        assert!(far[11] - far[0] > 1.0, "the good ones lie apart: {far:?}");
        let alike = targets(&[0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.9]);
        assert!(alike[7] > alike[0], "who is worse stays worse: {alike:?}");
    }
}
