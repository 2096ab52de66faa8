//! Convergence estimate: the epoch after which a job's convergence rule will end it, with an 80 %
//! interval, predicted from the losses so far by Optimus' curve.

use super::loss_curve::{self, LossCurve};
use crate::problem::FittedLoss;
use muster_model::spec::Convergence;

/// Largest distance in epochs for which a prediction is returned.
const MOST_EPOCHS: u64 = 10_000;

/// Last epoch of a job; `low <= expected <= high`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LastEpoch {
    /// `low` and `high` are the ends of an 80 % confidence interval.
    pub low: u64,
    pub expected: u64,
    pub high: u64,
}

/// Returns the epoch after which the job's convergence rule will end it, from the mean losses of
/// the epochs so far. Returns `None` if they do not determine it yet.
pub(crate) fn last_epoch(epoch_losses: &[(u64, f64)], rule: Convergence) -> Option<LastEpoch> {
    if !are_usable(epoch_losses) {
        return None;
    }
    let newest = epoch_losses.last()?.0;
    let fit = loss_curve::fit(epoch_losses)?;
    let expected = end_of(fit.best, newest, rule);
    if expected > newest + MOST_EPOCHS {
        return None;
    }
    let plausible = fit.plausible.into_iter();
    let ends = plausible.map(|curve| end_of(curve, newest, rule));
    let (low, high) = ends.fold((expected, expected), |(low, high), end| {
        (low.min(end), high.max(end))
    });
    Some(LastEpoch {
        low,
        expected,
        high,
    })
}

/// Returns the loss curve by optimizer steps, from the mean losses of the epochs so far. Returns
/// `None` if they do not determine it yet.
pub(crate) fn fitted_loss(epoch_losses: &[(u64, f64)], steps_per_epoch: u64) -> Option<FittedLoss> {
    if !are_usable(epoch_losses) {
        return None;
    }
    let LossCurve { b0, b1, b2 } = loss_curve::fit(epoch_losses)?.best;
    let losses = epoch_losses.iter().map(|&(_, loss)| loss);
    Some(FittedLoss {
        b0: b0 / steps_per_epoch.max(1) as f64,
        b1,
        b2,
        first: losses.fold(0.0, f64::max),
    })
}

fn are_usable(epoch_losses: &[(u64, f64)]) -> bool {
    epoch_losses
        .iter()
        .all(|(_, loss)| loss.is_finite() && *loss > 0.0)
}

/// Returns the epoch after `newest` with which the rule ends a job with this curve.
fn end_of(curve: LossCurve, newest: u64, rule: Convergence) -> u64 {
    let flat = first_flat(curve, newest, rule.relative_loss_drop);
    flat + rule.epochs.saturating_sub(1)
}

/// Returns the first epoch after `newest` in which the loss falls by less than `drop` of itself, at
/// most `MOST_EPOCHS` + 1 epochs later. The relative drop of the curve falls with the epoch. So
/// this epoch begins the run that ends the job, and bisection finds it.
fn first_flat(curve: LossCurve, newest: u64, drop: f64) -> u64 {
    let (mut steep, mut flat) = (newest, newest + MOST_EPOCHS + 1);
    while flat - steep > 1 {
        let middle = steep.midpoint(flat);
        let before = curve.loss(middle.saturating_sub(1));
        if (before - curve.loss(middle)) / before < drop {
            flat = middle;
        } else {
            steep = middle;
        }
    }
    flat
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Convergence = Convergence {
        relative_loss_drop: 0.02,
        epochs: 3,
    };

    fn losses(curve: LossCurve, epochs: u64) -> Vec<(u64, f64)> {
        (1..=epochs)
            .map(|epoch| (epoch, curve.loss(epoch)))
            .collect()
    }

    const KNOWN: LossCurve = LossCurve {
        b0: 0.3,
        b1: 0.4,
        b2: 0.25,
    };

    /// Returns the last epoch by the curve itself.
    fn truth(curve: LossCurve) -> u64 {
        first_flat(curve, 1, RULE.relative_loss_drop) + RULE.epochs - 1
    }

    /// Reproducible noise, approximately normal with a deviation of 1: the sum of twelve uniform
    /// numbers of a congruential generator (Knuth's constants).
    struct Noise(u64);

    impl Noise {
        fn uniform(&mut self) -> f64 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 11) as f64 / (1u64 << 53) as f64
        }

        fn normal(&mut self) -> f64 {
            (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
        }
    }

    #[test]
    fn last_epoch_is_predicted_from_six_epochs_of_known_curve() {
        let predicted = last_epoch(&losses(KNOWN, 6), RULE).expect("six epochs suffice");
        let end = truth(KNOWN);
        assert!(
            predicted.expected.abs_diff(end) <= 2,
            "{predicted:?} instead of {end}"
        );
        assert!(predicted.low <= predicted.expected && predicted.expected <= predicted.high);
    }

    #[test]
    fn one_outlier_loss_moves_the_prediction_little() {
        let clean = losses(KNOWN, 9);
        let mut spoilt = clean.clone();
        spoilt[4].1 *= 5.0;
        let (a, b) = (last_epoch(&clean, RULE), last_epoch(&spoilt, RULE));
        assert!(
            a.zip(b)
                .is_some_and(|(a, b)| a.expected.abs_diff(b.expected) <= 3),
            "{a:?} and {b:?}"
        );
    }

    #[test]
    fn unusable_losses_give_no_prediction() {
        assert_eq!(last_epoch(&[(1, 2.0), (2, 1.0)], RULE), None);
        assert_eq!(last_epoch(&[(1, 2.0), (2, f64::NAN), (3, 1.0)], RULE), None);
        assert_eq!(last_epoch(&[(1, 1.0), (2, 2.0), (3, 3.0)], RULE), None);
    }

    /// Returns the share of random curves whose end lies in the interval when `spoil` disturbs the
    /// losses.
    fn held(spoil: impl Fn(f64, f64) -> f64) -> f64 {
        const CASES: u32 = 400;
        let mut noise = Noise(1);
        let (mut held, mut cases, mut width) = (0, 0, 0.0);
        while cases < CASES {
            let curve = LossCurve {
                b0: 0.05 + 0.5 * noise.uniform(),
                b1: 0.2 + 0.6 * noise.uniform(),
                b2: 0.1 + 0.4 * noise.uniform(),
            };
            let end = truth(curve);
            let seen = (end as f64 * (0.4 + 0.4 * noise.uniform())) as u64;
            let mut noisy = losses(curve, seen);
            for (_, loss) in &mut noisy {
                *loss = spoil(*loss, noise.normal());
            }
            let Some(found) = last_epoch(&noisy, RULE).filter(|_| seen >= 6) else {
                continue;
            };
            cases += 1;
            held += u32::from(found.low <= end && end <= found.high);
            width += (found.high - found.low) as f64 / end as f64;
        }
        let mean_width = width / f64::from(CASES);
        println!("held {held} of {CASES}, on average {mean_width:.2} of the end wide");
        f64::from(held) / f64::from(CASES)
    }

    #[test]
    fn interval_contains_the_end_in_80_percent_of_cases() {
        let relative = held(|loss, noise| loss * (1.0 + 0.01 * noise));
        assert!((0.75..=0.87).contains(&relative), "{relative}");
        let absolute = held(|loss, noise| loss + 0.004 * noise);
        assert!((0.75..=0.87).contains(&absolute), "{absolute}");
    }

    /// Returns the width of the interval after that many epochs with noise.
    fn noisy_width(epochs: u64) -> u64 {
        let mut noise = Noise(7);
        let mut seen = losses(KNOWN, epochs);
        seen.iter_mut()
            .for_each(|(_, loss)| *loss *= 1.0 + 0.01 * noise.normal());
        let found = last_epoch(&seen, RULE).expect("a falling curve");
        found.high - found.low
    }

    #[test]
    fn more_epochs_narrow_the_interval() {
        let (few, many) = (noisy_width(8), noisy_width(16));
        assert!(many < few, "{many} and {few}");
    }
}
