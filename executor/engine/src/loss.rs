//! Softmax cross-entropy over class scores.

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

/// `scores` is batch × classes. With `gradient`, each row of `scores` is replaced by the gradient of that example's loss with respect
/// to it: softmax minus one-hot.
///
/// # Panics
/// When a label is not below `classes`; data sets are checked when they are read.
pub(crate) fn cross_entropy(
    scores: &mut [f32],
    labels: &[u8],
    classes: usize,
    gradient: bool,
) -> StepLoss {
    assert_eq!(
        scores.len(),
        labels.len() * classes,
        "one row of scores per label"
    );
    let mut total = StepLoss::default();
    for (row, label) in scores.chunks_exact_mut(classes).zip(labels) {
        let label = usize::from(*label);
        let (mut best, mut max) = (0, row[0]);
        for (class, score) in row.iter().enumerate() {
            if *score > max {
                (best, max) = (class, *score);
            }
        }
        let mut sum = 0.0_f64;
        for score in row.iter() {
            sum += f64::from((score - max).exp());
        }
        let log_sum = sum.ln();
        total.loss_sum += log_sum - f64::from(row[label] - max);
        total.correct += usize::from(best == label && !sum.is_nan());
        if gradient {
            for score in row.iter_mut() {
                *score = (f64::from((*score - max).exp()) / sum) as f32;
            }
            row[label] -= 1.0;
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_scores_cost_the_logarithm_of_the_classes() {
        let mut scores = vec![3.0; 8];
        let loss = cross_entropy(&mut scores, &[0, 3], 4, true);
        assert!((loss.loss_sum - 2.0 * 4.0_f64.ln()).abs() < 1e-12);
        assert_eq!(loss.correct, 1, "a tie goes to the lower class");
        assert_eq!(scores, [-0.75, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, -0.75]);
    }

    #[test]
    fn huge_scores_neither_overflow_nor_lose_the_loss() {
        let mut scores = vec![1e30, 0.0, -1e30, 5e4, 5e4, 0.0];
        let loss = cross_entropy(&mut scores, &[0, 1], 3, true);
        assert!((loss.loss_sum - 2.0_f64.ln()).abs() < 1e-12);
        assert!(scores.iter().all(|d| d.is_finite()));
    }

    #[test]
    fn a_diverged_network_shows() {
        for bad in [f32::NAN, f32::INFINITY] {
            let loss = cross_entropy(&mut [0.0, bad, 1.0], &[0], 3, false);
            assert!(!loss.loss_sum.is_finite());
            assert_eq!(loss.correct, 0);
        }
    }
}
