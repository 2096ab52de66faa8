//! Scalar metrics that a user's program logs: their names, goals and the points of a report.

use crate::report::LARGEST_NUMBER;
use serde::{Deserialize, Serialize};

/// Direction of a better value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Goal {
    Minimize,
    Maximize,
}

impl Goal {
    /// Returns the value in a form in which lower is better. Applied twice it returns the value
    /// again.
    #[must_use]
    pub fn as_loss(self, value: f64) -> f64 {
        match self {
            Self::Minimize => value,
            Self::Maximize => -value,
        }
    }

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Minimize => "minimize",
            Self::Maximize => "maximize",
        }
    }
}

/// Maximum number of names of a job; values of further names are not stored.
pub const MAX_METRICS: u32 = 500;
/// Maximum number of buckets of a series. A longer series gets wider buckets.
pub const MAX_BUCKETS: u32 = 2_000;
/// Maximum number of points in one report.
pub const MAX_POINTS_PER_REPORT: usize = 100;
/// Maximum length of a name in bytes. MLflow allows as many characters.
pub const MAX_NAME_BYTES: usize = 250;
/// Description of a valid name, for errors.
pub const NAME_RULE: &str = "1 to 250 bytes of letters, digits, spaces and _ - . / :";

/// One value of a metric, or several that were logged close to each other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricPoint {
    pub name: String,
    /// Step of the newest value.
    pub step: u64,
    /// The newest value.
    pub value: f64,
    /// Summary of several values; `None` for one value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged: Option<MergedValues>,
}

/// Summary of several values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MergedValues {
    pub count: u32,
    pub mean: f64,
    pub min: f64,
    pub max: f64,
}

/// Values of objectives at one step: metrics by which a study judges the trials of a program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ObjectiveValues {
    pub step: u64,
    /// Epoch that the program has logged last; 0 without one.
    pub epoch: f64,
    pub values: Vec<ObjectiveValue>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ObjectiveValue {
    pub name: String,
    /// `None` for a value that is not stored ([`is_stored`]).
    pub value: Option<f64>,
}

/// Why points are not acceptable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnfitMetrics {
    #[error("{count} points; expected 1 to {MAX_POINTS_PER_REPORT} in a report")]
    Count { count: usize },
    #[error("metric name {name:?}; expected {NAME_RULE}")]
    Name { name: String },
    #[error("summary of metric {name:?} has {problem}")]
    Summary { name: String, problem: &'static str },
}

/// Whether a text is a valid name of a metric: the characters that MLflow allows.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let is_known = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ' ' | ':');
    (1..=MAX_NAME_BYTES).contains(&text.len()) && text.chars().all(is_known)
}

/// Whether a value is stored. NaN, infinities and values above the range of reports are not.
#[must_use]
pub fn is_stored(value: f64) -> bool {
    value.abs() <= LARGEST_NUMBER
}

impl MetricPoint {
    /// Returns the summary of its values.
    #[must_use]
    pub fn summary(&self) -> MergedValues {
        self.merged.unwrap_or(MergedValues::of(self.value))
    }
}

impl MergedValues {
    /// Returns the summary of one value.
    #[must_use]
    pub fn of(value: f64) -> Self {
        Self {
            count: 1,
            mean: value,
            min: value,
            max: value,
        }
    }

    /// Returns the summary of these and other values.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        let [mine, others] = [self.count, other.count].map(f64::from);
        Self {
            count: self.count.saturating_add(other.count),
            mean: (self.mean * mine + other.mean * others) / (mine + others),
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }
}

/// Checks the points of a report, which a user's program may have written.
///
/// # Errors
/// [`UnfitMetrics`].
pub(crate) fn check(points: &[MetricPoint]) -> Result<(), UnfitMetrics> {
    if !(1..=MAX_POINTS_PER_REPORT).contains(&points.len()) {
        let count = points.len();
        return Err(UnfitMetrics::Count { count });
    }
    for point in points {
        let name = || point.name.clone();
        if !is_name(&point.name) {
            return Err(UnfitMetrics::Name { name: name() });
        }
        let MergedValues {
            count, min, max, ..
        } = point.summary();
        let problem = match count {
            0 => "no values",
            _ if min > max => "min above max",
            _ => continue,
        };
        return Err(UnfitMetrics::Summary {
            name: name(),
            problem,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_characters_of_mlflow() {
        for name in ["train/loss", "val acc", "f1:macro", "a-b_c.d", "größe", "7"] {
            assert!(is_name(name), "{name}");
        }
        let long = "x".repeat(MAX_NAME_BYTES + 1);
        for name in ["", "acc@1", "a\nb", "a,b", "a=b", &long] {
            assert!(!is_name(name), "{name}");
        }
    }

    #[test]
    fn summaries_add_up() {
        let two = MergedValues::of(1.0).with(MergedValues::of(4.0));
        let all = two.with(MergedValues::of(-2.0));
        let expected = MergedValues {
            count: 3,
            mean: 1.0,
            min: -2.0,
            max: 4.0,
        };
        assert_eq!(all, expected);
    }
}
