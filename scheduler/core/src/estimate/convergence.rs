//! How many epochs are left: Optimus' convergence model (Peng et al., EuroSys 2018, section 3.1).
//!
//! `loss(k) = 1 / (b0 k + b1) + b2` with all `b >= 0`. For a given `b2` it is linear in `b0` and `b1`, so the one non-linear
//! coefficient is searched on a grid and the others come from non-negative least squares.

use super::nnls;
use muster_model::spec::Convergence;

/// Fewer epochs than this tell nothing.
const FEWEST_EPOCHS: usize = 3;
/// A prediction further away than this is no prediction.
const MOST_EPOCHS: u64 = 10_000;

/// The fitted curve; loss per epoch.
#[derive(Debug, Clone, Copy)]
struct Curve {
    b0: f64,
    b1: f64,
    b2: f64,
}

/// The epoch after which the job's own rule will end it, predicted from the mean losses of the epochs so far; `None` when they do
/// not tell yet.
pub(crate) fn last_epoch(epoch_losses: &[(u64, f64)], rule: Convergence) -> Option<u64> {
    let usable = epoch_losses
        .iter()
        .all(|(_, loss)| loss.is_finite() && *loss > 0.0);
    if epoch_losses.len() < FEWEST_EPOCHS || !usable {
        return None;
    }
    let curve = fit(&without_outliers(epoch_losses))?;
    let newest = epoch_losses.last().map_or(0, |&(epoch, _)| epoch);
    let drop = |epoch: u64| {
        let before = curve.loss(epoch.saturating_sub(1));
        (before - curve.loss(epoch)) / before
    };
    // The relative drop of this curve falls with k, so the first flat epoch begins the run that ends the job.
    (newest + 1..newest + MOST_EPOCHS)
        .find(|&epoch| drop(epoch) < rule.relative_loss_drop)
        .map(|flat| flat + rule.epochs.saturating_sub(1))
}

impl Curve {
    fn loss(self, epoch: u64) -> f64 {
        // Epochs stay far below 2^52.
        1.0 / (self.b0 * epoch as f64 + self.b1) + self.b2
    }
}

/// A loss that stands out of both its neighbours by half or more is replaced by their mean; the newest counts only if it jumps up,
/// because a steep fall at the start of training is no outlier.
fn without_outliers(losses: &[(u64, f64)]) -> Vec<(u64, f64)> {
    const FACTOR: f64 = 1.5;
    let at = |i: usize| losses[i].1;
    let mut clean = losses.to_vec();
    let last = losses.len() - 1;
    for (i, point) in clean.iter_mut().enumerate().take(last).skip(1) {
        let (low, high) = (at(i - 1).min(at(i + 1)), at(i - 1).max(at(i + 1)));
        if point.1 > FACTOR * high || point.1 * FACTOR < low {
            point.1 = f64::midpoint(low, high);
        }
    }
    if at(last) > FACTOR * at(last - 1).max(at(last - 2)) {
        clean[last].1 = at(last - 1);
    }
    clean
}

fn fit(losses: &[(u64, f64)]) -> Option<Curve> {
    const GRID: u32 = 40;
    let lowest = losses
        .iter()
        .map(|&(_, loss)| loss)
        .fold(f64::INFINITY, f64::min);
    (0..GRID)
        .map(|i| lowest * f64::from(i) / f64::from(GRID))
        .filter_map(|b2| {
            let rows: Vec<([f64; 2], f64)> = losses
                .iter()
                .enumerate()
                .map(|(i, &(epoch, loss))| {
                    // d(1/y) = dy / y^2: this factor makes the rows measure the error in the loss.
                    let above = loss - b2;
                    let weight = segment_weight(i, losses.len()) * above * above;
                    ([weight * epoch as f64, weight], weight / above)
                })
                .collect();
            let [b0, b1] = nnls::solve(&rows);
            let curve = Curve { b0, b1, b2 };
            (b0 > 0.0).then(|| (curve, error(losses, curve)))
        })
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .map(|(curve, _)| curve)
}

fn error(losses: &[(u64, f64)], curve: Curve) -> f64 {
    losses
        .iter()
        .enumerate()
        .map(|(i, &(epoch, loss))| {
            (segment_weight(i, losses.len()) * (curve.loss(epoch) - loss)).powi(2)
        })
        .sum()
}

/// Three segments, each counting four times the one before, as in the Optimus prototype: the newest losses tell most.
fn segment_weight(i: usize, count: usize) -> f64 {
    match 3 * i / count {
        0 => 1.0,
        1 => 4.0,
        _ => 16.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(b0: f64, b1: f64, b2: f64, epochs: u64) -> Vec<(u64, f64)> {
        let curve = Curve { b0, b1, b2 };
        (1..=epochs)
            .map(|epoch| (epoch, curve.loss(epoch)))
            .collect()
    }

    #[test]
    fn predicts_the_end_of_a_known_curve_from_its_first_epochs() {
        let rule = Convergence {
            relative_loss_drop: 0.02,
            epochs: 3,
        };
        let whole = Curve {
            b0: 0.3,
            b1: 0.4,
            b2: 0.25,
        };
        let flat = (2..)
            .find(|&k| (whole.loss(k - 1) - whole.loss(k)) / whole.loss(k - 1) < 0.02)
            .expect("the curve flattens");
        let predicted = last_epoch(&curve(0.3, 0.4, 0.25, 6), rule).expect("six epochs suffice");
        assert!(
            predicted.abs_diff(flat + 2) <= 2,
            "{predicted} instead of {}",
            flat + 2
        );
    }

    #[test]
    fn one_spoilt_loss_does_not_move_the_prediction_far() {
        let rule = Convergence {
            relative_loss_drop: 0.02,
            epochs: 1,
        };
        let clean = curve(0.3, 0.4, 0.25, 9);
        let mut spoilt = clean.clone();
        spoilt[4].1 *= 5.0;
        let (a, b) = (last_epoch(&clean, rule), last_epoch(&spoilt, rule));
        assert!(
            a.zip(b).is_some_and(|(a, b)| a.abs_diff(b) <= 3),
            "{a:?} and {b:?}"
        );
    }

    #[test]
    fn too_few_or_useless_losses_tell_nothing() {
        let rule = Convergence {
            relative_loss_drop: 0.02,
            epochs: 1,
        };
        assert_eq!(last_epoch(&[(1, 2.0), (2, 1.0)], rule), None);
        assert_eq!(last_epoch(&[(1, 2.0), (2, f64::NAN), (3, 1.0)], rule), None);
        assert_eq!(last_epoch(&[(1, 1.0), (2, 2.0), (3, 3.0)], rule), None);
    }
}
