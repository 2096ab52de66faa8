//! Losses as a Gaussian process likes them: centred, of deviation 1, and without the long tail that bad trials make.

/// Yeo and Johnson's power transform (2000) at its likeliest power, of standardised losses; the order stays.
pub(super) fn targets(losses: &[f64]) -> Vec<f64> {
    let mut sorted = losses.to_vec();
    sorted.sort_by(f64::total_cmp);
    let median = sorted[sorted.len() / 2];
    // Diverged trials are bad enough at a thousand times the middle half's width.
    let width = (sorted[sorted.len() * 3 / 4] - sorted[sorted.len() / 4]).max(1e-12);
    let most = median + 1000.0 * width;
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
