//! What a study asks for: parameters to search, by which searcher, stopped by which rule, judged by which metrics.
//!
//! The words are Optuna's (`float`, `int`, `categorical`, `low`, `high`, `step`, `log`); Katib's `parameterType` and `feasibleSpace` are
//! accepted too. [`SearchSpec::space`] turns them into a [`Space`] or says, field by field, what is wrong. How a search proceeds is
//! the business of another crate.

mod constraint;
mod document;
mod domain;
mod metric;
mod order;
mod parameter;
mod searcher;
mod space;
mod stopper;
mod targets;

pub use constraint::Constraint;
pub use document::{StudyKind, StudySpec};
pub use domain::{Domain, Line};
pub use metric::JobMetric;
pub use order::{StudyOrder, StudyPhase, Told, ToldState, TrialPhase};
pub use parameter::{Condition, FeasibleSpace, Parameter, ParameterKind};
pub use searcher::Searcher;
pub use space::{Dimension, MAX_GRID, MAX_PARAMETERS, Parameters, Point, Space};
pub use stopper::Stopper;

use crate::spec::FieldError;
use serde::{Deserialize, Serialize};

/// More trials than this no search may create.
pub const MAX_TRIALS: u32 = 100_000;

/// Everything a search depends on, its seed included: the same document and the same events give the same trials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SearchSpec {
    /// What is sought; with two to four, the study keeps a Pareto front.
    pub objectives: Vec<Objective>,
    pub parameters: Vec<Parameter>,
    /// Inequalities between parameters, such as `width * depth <= 4096`; a trial that breaks one is never started. A constraint
    /// that names a parameter which the trial does not have does not apply to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub constraints: Vec<String>,
    #[serde(default)]
    pub searcher: Searcher,
    #[serde(default)]
    pub stopper: Stopper,
    #[serde(default)]
    pub budget: Budget,
    /// Trials that may be created in all; 1 to 100,000.
    pub trials: u32,
    /// Trials that may run at one time; 1 to 1000.
    #[serde(default = "one")]
    pub concurrency: u32,
    /// Failed trials after which the study gives up; 0 to 100,000.
    #[serde(default = "default_failures")]
    pub max_failures: u32,
    /// Results count in the order in which their work was handed out, so that the trials do not depend on which machine was
    /// quicker. A slot may then wait for an older result.
    #[serde(default)]
    pub reproducible: bool,
    #[serde(default)]
    pub seed: u64,
}

/// A metric and which way is better.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Objective {
    /// As trials report it, such as `test_accuracy`.
    pub metric: String,
    pub goal: Goal,
    /// The study is done when a trial reaches it; HyperDrive predicts whether one will. With `reproducible` only the values with which
    /// rungs end count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Goal {
    Minimize,
    Maximize,
}

/// How far one trial may train.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Budget {
    /// In `unit`s; 1 to 1,000,000,000.
    pub max: u64,
    #[serde(default)]
    pub unit: BudgetUnit,
    /// Where a command is told how far to train, such as `command.env.EPOCHS`. The built-in engine needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum BudgetUnit {
    #[default]
    Epochs,
    Steps,
}

impl Goal {
    /// The value as one of which less is better; applied twice it is the value again.
    #[must_use]
    pub fn as_loss(self, value: f64) -> f64 {
        match self {
            Self::Minimize => value,
            Self::Maximize => -value,
        }
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            max: 1,
            unit: BudgetUnit::Epochs,
            field: None,
        }
    }
}

impl SearchSpec {
    /// Checks every rule and gives the space that is searched.
    ///
    /// # Errors
    /// All that is wrong, each with its field, its value and what would be right.
    pub fn space(&self) -> Result<Space, Vec<FieldError>> {
        let mut errors = Errors::default();
        self.check_objectives(&mut errors);
        errors.within("budget.max", self.budget.max, 1, 1_000_000_000);
        errors.within("trials", self.trials.into(), 1, MAX_TRIALS.into());
        errors.within("concurrency", u64::from(self.concurrency), 1, 1000);
        errors.within("max_failures", u64::from(self.max_failures), 0, 100_000);
        self.searcher.check(self, &mut errors);
        self.stopper.check(self, &mut errors);
        let space = Space::build(&self.parameters, &self.constraints, &mut errors);
        if let (Some(space), Searcher::Grid {}) = (&space, &self.searcher) {
            space.check_grid(&mut errors);
        }
        match space {
            Some(space) if errors.0.is_empty() => Ok(space),
            _ => Err(errors.0),
        }
    }

    fn check_objectives(&self, errors: &mut Errors) {
        let count = self.objectives.len();
        errors.check(
            "objectives",
            &format!("{count} objectives"),
            (1..=4).contains(&count),
            "1 to 4 objectives",
        );
        for (i, objective) in self.objectives.iter().enumerate() {
            let twice = self.objectives[..i]
                .iter()
                .any(|o| o.metric == objective.metric);
            errors.check(
                &format!("objectives[{i}].metric"),
                &format!("{:?}", objective.metric),
                !twice && (1..=63).contains(&objective.metric.len()),
                "a name of 1 to 63 bytes that no other objective has",
            );
            if let Some(target) = objective.target {
                errors.check(
                    &format!("objectives[{i}].target"),
                    &target.to_string(),
                    target.is_finite(),
                    "a finite number",
                );
            }
        }
    }
}

fn one() -> u32 {
    1
}

fn default_failures() -> u32 {
    100
}

/// What is wrong so far.
#[derive(Default)]
struct Errors(Vec<FieldError>);

impl Errors {
    fn check(&mut self, field: &str, value: &str, right: bool, expected: &str) {
        if !right {
            self.0.push(FieldError {
                field: field.to_owned(),
                value: value.to_owned(),
                expected: expected.to_owned(),
            });
        }
    }

    fn within(&mut self, field: &str, value: u64, low: u64, high: u64) {
        let right = (low..=high).contains(&value);
        self.check(
            field,
            &value.to_string(),
            right,
            &format!("{low} to {high}"),
        );
    }

    /// A share of a whole.
    fn part(&mut self, field: &str, value: f64, low: f64, high: f64) {
        let right = (low..=high).contains(&value);
        self.check(
            field,
            &value.to_string(),
            right,
            &format!("{low} to {high}"),
        );
    }
}
