//! The `stop.target` part of the job document: a metric and the value at which training ends.

use super::validate::Errors;
use crate::assignment::TaskReport;
use crate::metric::{Goal, NAME_RULE, is_name};
use serde::{Deserialize, Serialize};

/// Stop once `metric` reaches `value`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Target {
    /// `test_accuracy` or `test_loss`, which evaluations measure, or for a command any metric that
    /// it logs, such as `val/f1`.
    #[cfg_attr(feature = "schema", schema(value_type = String, max_length = 250))]
    pub metric: Metric,
    /// For `test_accuracy` above 0 and at most 1, for `test_loss` above 0.
    pub value: f64,
    /// Direction from which the value is reached. Required for a metric that a command logs; the
    /// goal of the others is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<Goal>,
}

/// A value that reaches a target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReachingValue {
    pub step: u64,
    pub value: f64,
}

/// Metric of a target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Metric {
    /// Reached from below.
    TestAccuracy,
    /// Reached from above.
    TestLoss,
    /// Metric of this name that a user's program logs.
    Logged(String),
}

const TEST_ACCURACY: &str = "test_accuracy";
const TEST_LOSS: &str = "test_loss";

impl From<String> for Metric {
    fn from(name: String) -> Self {
        match name.as_str() {
            TEST_ACCURACY => Self::TestAccuracy,
            TEST_LOSS => Self::TestLoss,
            _ => Self::Logged(name),
        }
    }
}

impl From<Metric> for String {
    fn from(metric: Metric) -> Self {
        metric.as_str().to_owned()
    }
}

impl Metric {
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::TestAccuracy => TEST_ACCURACY,
            Self::TestLoss => TEST_LOSS,
            Self::Logged(name) => name,
        }
    }

    /// Returns its value in an evaluation; `None` for a metric that no evaluation has.
    #[must_use]
    pub fn of_evaluation(&self, loss: Option<f64>, accuracy: Option<f64>) -> Option<f64> {
        match self {
            Self::TestAccuracy => accuracy,
            Self::TestLoss => loss,
            Self::Logged(_) => None,
        }
    }

    /// Returns the goal of a metric of evaluations; `None` for other metrics.
    fn own_goal(&self) -> Option<Goal> {
        match self {
            Self::TestAccuracy => Some(Goal::Maximize),
            Self::TestLoss => Some(Goal::Minimize),
            Self::Logged(_) => None,
        }
    }
}

impl Target {
    /// Whether a value of the metric reaches the target.
    #[must_use]
    pub fn is_met(&self, value: f64) -> bool {
        match self.metric.own_goal().or(self.goal) {
            Some(Goal::Minimize) => value <= self.value,
            Some(Goal::Maximize) => value >= self.value,
            None => false,
        }
    }

    /// Returns the first value of a report that reaches the target. Of merged values, the smallest
    /// and the largest are known exactly.
    #[must_use]
    pub fn reached_by(&self, report: &TaskReport) -> Option<ReachingValue> {
        let found = match (&self.metric, report) {
            (Metric::Logged(name), TaskReport::Metrics { points }) => {
                let mut points = points.iter().filter(|point| point.name == *name);
                points.find_map(|point| {
                    let merged = point.summary();
                    let value = match self.goal {
                        Some(Goal::Minimize) => merged.min,
                        _ => merged.max,
                    };
                    let step = point.step;
                    // A later point may reach it.
                    self.is_met(value).then_some(ReachingValue { step, value })
                })
            }
            (metric, TaskReport::Evaluated { evaluation }) => {
                let value = metric.of_evaluation(evaluation.loss, evaluation.accuracy)?;
                let step = evaluation.step;
                Some(ReachingValue { step, value })
            }
            _ => None,
        };
        found.filter(|found| self.is_met(found.value))
    }

    /// Returns why training ends at `value`, as text for users.
    #[must_use]
    pub fn reason(&self, value: f64) -> String {
        let name = match &self.metric {
            Metric::TestAccuracy => "test accuracy",
            Metric::TestLoss => "test loss",
            Metric::Logged(name) => name,
        };
        format!("{name} reached {value:.4}, its target is {}", self.value)
    }

    pub(super) fn check(&self, has_command: bool, errors: &mut Errors) {
        let Self {
            metric,
            value,
            goal,
        } = self;
        if let Metric::Logged(name) = metric {
            let expected = if has_command {
                NAME_RULE
            } else {
                "test_accuracy or test_loss: the built-in engine logs no other metric"
            };
            let right = has_command && is_name(name);
            errors.check("stop.target.metric", &format!("{name:?}"), right, expected);
            errors.check(
                "stop.target.goal",
                &"missing",
                !has_command || goal.is_some(),
                "minimize or maximize: the direction from which the program's metric reaches the value",
            );
        }
        let (right, expected) = match metric {
            Metric::TestAccuracy => (*value > 0.0 && *value <= 1.0, "above 0 and at most 1"),
            Metric::TestLoss => (*value > 0.0 && value.is_finite(), "above 0"),
            Metric::Logged(_) => (value.is_finite(), "a finite number"),
        };
        errors.check("stop.target.value", value, right, expected);
        if let (Some(known), Some(given)) = (metric.own_goal(), goal) {
            errors.check(
                "stop.target.goal",
                &given.as_str(),
                known == *given,
                &format!(
                    "left out, or {}, the goal of {}",
                    known.as_str(),
                    metric.as_str()
                ),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::{MergedValues, MetricPoint};
    use crate::progress::{Evaluation, Split};

    fn target(metric: &str, value: f64, goal: Option<Goal>) -> Target {
        Target {
            metric: metric.to_owned().into(),
            value,
            goal,
        }
    }

    fn logged(name: &str, [min, last, max]: [f64; 3]) -> TaskReport {
        let merged = Some(MergedValues {
            count: 3,
            mean: last,
            min,
            max,
        });
        let (name, step, value) = (name.to_owned(), 7, last);
        let point = MetricPoint {
            name,
            step,
            value,
            merged,
        };
        TaskReport::Metrics {
            points: vec![point],
        }
    }

    #[test]
    fn extreme_of_merged_values_reaches_the_target() {
        let report = logged("f1", [0.1, 0.5, 0.9]);
        let value = |target: Target| target.reached_by(&report).map(|one| one.value);
        assert_eq!(value(target("f1", 0.9, Some(Goal::Maximize))), Some(0.9));
        assert_eq!(value(target("f1", 0.91, Some(Goal::Maximize))), None);
        assert_eq!(value(target("f1", 0.1, Some(Goal::Minimize))), Some(0.1));
        assert_eq!(value(target("f1", 0.09, Some(Goal::Minimize))), None);
        assert_eq!(value(target("f2", 0.0, Some(Goal::Maximize))), None);
    }

    #[test]
    fn evaluation_reaches_a_target_of_its_own_metrics() {
        let evaluation = Evaluation {
            step: 7,
            epoch: 1.0,
            split: Split::Validation,
            loss: None,
            accuracy: Some(0.8),
        };
        let report = TaskReport::Evaluated { evaluation };
        let value = |target: Target| target.reached_by(&report).map(|one| one.value);
        assert_eq!(value(target("test_accuracy", 0.8, None)), Some(0.8));
        assert_eq!(value(target("test_accuracy", 0.81, None)), None);
        assert_eq!(value(target("test_loss", 0.8, None)), None);
        assert_eq!(value(target("f1", 0.1, Some(Goal::Maximize))), None);
    }
}
