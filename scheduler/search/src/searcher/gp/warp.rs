//! Losses as a Gaussian process likes them: centred, of deviation 1, and without the long tail that bad trials make.

/// Yeo and Johnson's power transform (2000) at its likeliest power, of standardised losses; the order stays.
pub(super) fn targets(losses: &[f64]) -> Vec<f64> {
    let mut sorted = losses.to_vec();
    sorted.sort_by(f64::total_cmp);
    let median = sorted[sorted.len() / 2];
    // How bad bad trials are says nothing of where good ones lie, and where training diverges it is a cliff that no smooth process follows.
    let width = sorted[sorted.len() * 3 / 4] - sorted[sorted.len() / 4];
    // Where most are equal, whoever is worse is not made equal too.
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

    /// Where learning rates diverge is a cliff: its height must not make what lies at its foot look alike.
    #[test]
    fn how_bad_bad_trials_are_takes_nothing_from_the_good_ones() {
        let with = |bad: f64| {
            let mut losses: Vec<f64> = (0..12).map(|i| 0.20 + 0.01 * f64::from(i)).collect();
            losses.extend([bad; 3]);
            targets(&losses)
        };
        let [near, far] = [0.5, 5000.0].map(with);
        assert_eq!(near, far, "of the bad ones only that they are bad counts");
        let between = |targets: &[f64]| targets[11] - targets[0];
        assert!(between(&far) > 1.0, "the good ones lie apart: {far:?}");
        let alike = targets(&[0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.9]);
        assert!(alike[7] > alike[0], "who is worse stays worse: {alike:?}");
    }
}
