//! Loss functions.

use crate::layer::math;
use crate::model::BatchTargets;

/// Result of a pass over some examples. Both fields are sums, so that the parts of a batch add up.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StepLoss {
    /// Sum of the losses of the examples; for a classifier −ln p(label) in nats. NaN or infinite
    /// once the network has diverged.
    pub loss_sum: f64,
    /// Classifiers: number of examples whose label has the highest score. A tie selects the lower
    /// class, and an example with a NaN score is wrong. Binary targets: number of scores on the
    /// correct side of 0. Regression: 0.
    pub correct: usize,
}

impl std::ops::AddAssign for StepLoss {
    fn add_assign(&mut self, other: Self) {
        self.loss_sum += other.loss_sum;
        self.correct += other.correct;
    }
}

/// Loss function. The loss of an example is the mean over its targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LossFunction {
    /// −ln of the softmax of the correct class, in nats.
    CrossEntropy { classes: usize },
    /// (output − target)².
    Squared { outputs: usize },
    /// −t ln σ(x) − (1 − t) ln(1 − σ(x)) of a score x and a target t from 0 to 1, in nats.
    Binary { outputs: usize },
}

impl LossFunction {
    /// Returns the number of targets per example with `outputs` outputs.
    pub(crate) fn targets(self, outputs: usize) -> usize {
        match self {
            Self::CrossEntropy { classes } => outputs / classes,
            Self::Squared { .. } | Self::Binary { .. } => outputs,
        }
    }

    pub(crate) fn wants_classes(self) -> bool {
        match self {
            Self::CrossEntropy { .. } => true,
            Self::Squared { .. } | Self::Binary { .. } => false,
        }
    }

    /// Returns the loss of `output`, examples × outputs. Overwrites `d_output`, if given, with the
    /// gradient of each example's loss with respect to the output.
    ///
    /// # Panics
    /// If the targets are of another kind or number, or a class is out of range; data sets are
    /// checked when they are read.
    pub(crate) fn of(
        self,
        output: &[f32],
        targets: BatchTargets<'_>,
        d_output: Option<&mut [f32]>,
    ) -> StepLoss {
        match (self, targets) {
            (Self::CrossEntropy { classes }, BatchTargets::Classes(labels)) => {
                cross_entropy(output, labels, classes, d_output)
            }
            (Self::Squared { outputs }, BatchTargets::Values(values)) => {
                squared(output, values, outputs, d_output)
            }
            (Self::Binary { outputs }, BatchTargets::Values(values)) => {
                binary(output, values, outputs, d_output)
            }
            (_, targets) => panic!("a network of {self:?} was given {targets:?}"),
        }
    }
}

/// Cross-entropy; `scores` is rows × classes. The gradient is softmax minus one-hot.
fn cross_entropy(
    scores: &[f32],
    labels: &[u32],
    classes: usize,
    d_scores: Option<&mut [f32]>,
) -> StepLoss {
    assert_eq!(
        scores.len(),
        labels.len() * classes,
        "one row of scores per label"
    );
    let mut total = StepLoss::default();
    let mut scratch = vec![0.0; if d_scores.is_none() { classes } else { 0 }];
    let mut d_rows = d_scores.map(|d_scores| d_scores.chunks_exact_mut(classes));
    for (row, label) in scores.chunks_exact(classes).zip(labels) {
        let label = *label as usize;
        let max = math::largest(row);
        let d_row = d_rows.as_mut().and_then(Iterator::next);
        let training = d_row.is_some();
        let d_row = d_row.unwrap_or(&mut scratch);
        let sum = math::exp_sum(row, max, d_row);
        total.loss_sum += sum.ln() - f64::from(row[label] - max);
        let best = row[label] == max && row[..label].iter().all(|score| *score < max);
        total.correct += usize::from(best && !sum.is_nan());
        if training {
            math::scale(d_row, (1.0 / sum) as f32);
            d_row[label] -= 1.0;
        }
    }
    total
}

/// Squared error of examples × outputs.
fn squared(
    output: &[f32],
    targets: &[f32],
    outputs: usize,
    d_output: Option<&mut [f32]>,
) -> StepLoss {
    assert_eq!(output.len(), targets.len(), "one target per output");
    let errors = output.iter().zip(targets).map(|(y, t)| y - t);
    let sum: f64 = errors.clone().map(|e| f64::from(e) * f64::from(e)).sum();
    if let Some(d_output) = d_output {
        let factor = 2.0 / outputs as f32;
        for (d, error) in d_output.iter_mut().zip(errors) {
            *d = factor * error;
        }
    }
    StepLoss {
        loss_sum: sum / outputs as f64,
        correct: 0,
    }
}

/// Binary cross-entropy of examples × outputs, computed as max(x, 0) − x t + ln(1 + e^−|x|), which
/// neither overflows nor loses small losses.
fn binary(
    scores: &[f32],
    targets: &[f32],
    outputs: usize,
    d_scores: Option<&mut [f32]>,
) -> StepLoss {
    assert_eq!(scores.len(), targets.len(), "one target per score");
    let mut total = StepLoss::default();
    for (&x, &t) in scores.iter().zip(targets) {
        // The comparison propagates a NaN; `f32::max` would not.
        let positive = if x < 0.0 { 0.0 } else { x };
        let tail = (-f64::from(x.abs())).exp().ln_1p();
        total.loss_sum += f64::from(positive) - f64::from(x) * f64::from(t) + tail;
        total.correct += usize::from(!x.is_nan() && (x > 0.0) == (t > 0.5));
    }
    total.loss_sum /= outputs as f64;
    if let Some(d_scores) = d_scores {
        let factor = 1.0 / outputs as f32;
        for (d, (x, t)) in d_scores.iter_mut().zip(scores.iter().zip(targets)) {
            *d = factor * (math::sigmoid(*x) - t);
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_scores_cost_the_logarithm_of_the_classes() {
        let mut d_scores = vec![f32::NAN; 8];
        let loss = cross_entropy(&[3.0; 8], &[0, 3], 4, Some(&mut d_scores));
        assert!((loss.loss_sum - 2.0 * 4.0_f64.ln()).abs() < 1e-12);
        assert_eq!(loss.correct, 1, "a tie goes to the lower class");
        assert_eq!(d_scores, [-0.75, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, -0.75]);
    }

    #[test]
    fn huge_scores_neither_overflow_nor_hide_the_loss() {
        let scores = [1e30, 0.0, -1e30, 5e4, 5e4, 0.0];
        let mut d_scores = [f32::NAN; 6];
        let loss = cross_entropy(&scores, &[0, 1], 3, Some(&mut d_scores));
        assert!((loss.loss_sum - 2.0_f64.ln()).abs() < 1e-12);
        assert!(d_scores.iter().all(|d| d.is_finite()));
    }

    #[test]
    fn binary_loss_is_the_cross_entropy() {
        let (scores, targets) = ([0.0, 100.0, -100.0, 3.0], [1.0, 1.0, 1.0, 0.0]);
        let mut d_scores = [f32::NAN; 4];
        let loss = binary(&scores, &targets, 2, Some(&mut d_scores));
        let expected = 2.0_f64.ln() + 100.0 + (1.0 + 3.0_f64.exp()).ln();
        assert!((loss.loss_sum - expected / 2.0).abs() < 1e-9);
        assert_eq!(loss.correct, 1);
        let expected = [-0.25, 0.0, -0.5, 0.5 / (1.0 + (-3.0_f32).exp())];
        let close = d_scores
            .iter()
            .zip(expected)
            .all(|(d, e)| (d - e).abs() < 1e-7);
        assert!(close, "{d_scores:?}");
    }

    #[test]
    fn squared_loss_is_the_mean_square() {
        let mut d_output = [f32::NAN; 4];
        let loss = squared(
            &[1.0, 2.0, 3.0, 0.5],
            &[1.0, 0.0, 0.0, 1.0],
            2,
            Some(&mut d_output),
        );
        assert_eq!(loss.loss_sum, (4.0 + 9.0 + 0.25) / 2.0);
        assert_eq!(d_output, [0.0, 2.0, 3.0, -0.5]);
    }

    #[test]
    fn nan_scores_give_a_nonfinite_loss() {
        for bad in [f32::NAN, f32::INFINITY] {
            assert!(!squared(&[bad], &[0.0], 1, None).loss_sum.is_finite());
            assert!(!binary(&[bad], &[0.0], 1, None).loss_sum.is_finite());
            let loss = cross_entropy(&[0.0, bad, 1.0], &[0], 3, None);
            assert!(!loss.loss_sum.is_finite());
            assert_eq!(loss.correct, 0);
        }
    }
}
