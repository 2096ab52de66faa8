//! Metrics of a trial's job, by the names that objectives use.

use crate::progress::{Evaluation, Sample};

/// Metric that every job reports. A program reports further ones under its own names, and so does
/// a study whose trials are trained outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobMetric {
    TestAccuracy,
    TestLoss,
    TrainAccuracy,
    TrainLoss,
    /// Depends on the machines; it differs from run to run.
    ExamplesPerS,
}

impl JobMetric {
    pub const ALL: [Self; 5] = [
        Self::TestAccuracy,
        Self::TestLoss,
        Self::TrainAccuracy,
        Self::TrainLoss,
        Self::ExamplesPerS,
    ];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TestAccuracy => "test_accuracy",
            Self::TestLoss => "test_loss",
            Self::TrainAccuracy => "train_accuracy",
            Self::TrainLoss => "train_loss",
            Self::ExamplesPerS => "examples_per_s",
        }
    }

    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == name)
    }

    /// Whether it is measured by evaluations on the test split.
    #[must_use]
    pub fn is_of_test(self) -> bool {
        matches!(self, Self::TestAccuracy | Self::TestLoss)
    }

    /// Returns its value at an evaluation and at the newest sample before it.
    #[must_use]
    pub fn value(self, evaluation: Option<&Evaluation>, sample: Option<&Sample>) -> Option<f64> {
        match self {
            Self::TestAccuracy => evaluation.and_then(|one| one.accuracy),
            Self::TestLoss => evaluation.and_then(|one| one.loss),
            Self::TrainAccuracy => sample.and_then(|one| one.accuracy),
            Self::TrainLoss => sample.map(|one| one.loss),
            Self::ExamplesPerS => sample.and_then(|one| one.examples_per_s),
        }
    }
}
