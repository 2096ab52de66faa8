//! What networks are trained to make small.

use crate::layer::math;
use crate::model::Targets;

/// What a pass over some examples found. Sums, so that parts of a batch add up.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StepLoss {
    /// Sum over the examples of −ln p(label), in nats. NaN or infinite once the network has diverged.
    pub loss_sum: f64,
    /// Examples whose label has the highest score; ties go to the lower class, an example with a NaN score is wrong.
    pub correct: usize,
}

impl std::ops::AddAssign for StepLoss {
    fn add_assign(&mut self, other: Self) {
        self.loss_sum += other.loss_sum;
        self.correct += other.correct;
    }
}

/// What a network is trained to make small. Per example it is the mean over the example's targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// −ln of the softmax of the right class, in nats.
    CrossEntropy { classes: usize },
}

impl Loss {
    /// Targets per example of so many outputs.
    pub(crate) fn targets(self, outputs: usize) -> usize {
        match self {
            Self::CrossEntropy { classes } => outputs / classes,
        }
    }

    pub(crate) fn wants_classes(self) -> bool {
        match self {
            Self::CrossEntropy { .. } => true,
        }
    }

    /// Of `output`, examples × outputs. With `d_output`, that is overwritten by the gradient of each example's loss with respect to
    /// the output.
    ///
    /// # Panics
    /// When targets are of another kind or number, or a class is none; data sets are checked when they are read.
    pub(crate) fn of(
        self,
        output: &[f32],
        targets: Targets<'_>,
        d_output: Option<&mut [f32]>,
    ) -> StepLoss {
        match (self, targets) {
            (Self::CrossEntropy { classes }, Targets::Classes(labels)) => {
                cross_entropy(output, labels, classes, d_output)
            }
            (_, targets) => panic!("a network of {self:?} was given {targets:?}"),
        }
    }
}

/// `scores` is rows × classes; softmax minus one-hot is the gradient.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_scores_cost_the_logarithm_of_the_classes() {
        let mut d_scores = vec![f32::NAN; 8];
        let loss = cross_entropy(&[3.0; 8], &[0, 3], 4, Some(&mut d_scores));
        assert!((loss.loss_sum - 2.0 * 4.0_f64.ln()).abs() < 1e-12);
        assert_eq!(loss.correct, 1, "a tie goes to the lower class");
        assert_eq!(d_scores, [-0.75, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, -0.75]);
    }

    #[test]
    fn huge_scores_neither_overflow_nor_lose_the_loss() {
        let scores = [1e30, 0.0, -1e30, 5e4, 5e4, 0.0];
        let mut d_scores = [f32::NAN; 6];
        let loss = cross_entropy(&scores, &[0, 1], 3, Some(&mut d_scores));
        assert!((loss.loss_sum - 2.0_f64.ln()).abs() < 1e-12);
        assert!(d_scores.iter().all(|d| d.is_finite()));
    }

    #[test]
    fn a_diverged_network_shows() {
        for bad in [f32::NAN, f32::INFINITY] {
            let loss = cross_entropy(&[0.0, bad, 1.0], &[0], 3, None);
            assert!(!loss.loss_sum.is_finite());
            assert_eq!(loss.correct, 0);
        }
    }
}
