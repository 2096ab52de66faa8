//! The rule by which the best checkpoints stay.

use crate::metric::Goal;
use serde::{Deserialize, Serialize};

/// The best checkpoints stay, however old they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct KeepBest {
    /// Number of checkpoints; 1 to 1000. Default: 1.
    #[serde(default = "default_best")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 1000))]
    pub count: u32,
    /// Only for the built-in engine.
    #[serde(default, skip_serializing_if = "Measure::is_default")]
    pub by: Measure,
    /// Only for commands, with `goal`: any metric that rank 0 logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    /// Direction of a better `metric`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<Goal>,
}

fn default_best() -> u32 {
    1
}

impl KeepBest {
    /// Returns the rule with its metric and goal, if it names a program's metric.
    #[must_use]
    pub fn own_metric(&self) -> Option<(&Self, &str, Goal)> {
        let name = self.metric.as_deref()?;
        Some((self, name, self.goal?))
    }
}

/// Measure of an evaluation on the test split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Measure {
    /// Higher is better.
    #[default]
    Accuracy,
    /// Lower is better.
    Loss,
}

impl Measure {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "signature that serde requires"
    )]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
