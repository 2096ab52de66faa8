//! The search of a study: parameters, searcher, stopper and objectives.
//!
//! The field names are those of Optuna (`float`, `int`, `categorical`, `low`, `high`, `step`,
//! `log`). Katib's `parameterType` and `feasibleSpace` are accepted too. [`SearchSpec::space`]
//! checks the search and returns its [`Space`]. The algorithms are in `muster-search`.

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

pub use crate::metric::Goal;
use crate::metric::MAX_NAME_BYTES;
use crate::spec::FieldError;
use serde::{Deserialize, Serialize};

/// Maximum number of trials of a search.
pub const MAX_TRIALS: u32 = 100_000;

/// Everything on which a search depends, including its seed. The same document and the same events
/// give the same trials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SearchSpec {
    /// One to four metrics. With two or more, the study keeps a Pareto front.
    pub objectives: Vec<Objective>,
    pub parameters: Vec<Parameter>,
    /// Inequalities between parameters, such as `width * depth <= 4096`. A trial that breaks one is
    /// never started. A constraint does not apply to a trial that lacks one of its parameters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub constraints: Vec<String>,
    #[serde(default)]
    pub searcher: Searcher,
    #[serde(default)]
    pub stopper: Stopper,
    #[serde(default)]
    pub budget: Budget,
    /// Maximum number of trials in total; 1 to 100,000.
    pub trials: u32,
    /// Maximum number of trials that run at the same time; 1 to 1000.
    #[serde(default = "one")]
    pub concurrency: u32,
    /// Number of failed trials after which the study gives up; 0 to 100,000.
    #[serde(default = "default_failures")]
    pub max_failures: u32,
    /// Results count in the order in which their work was handed out, so the trials do not depend
    /// on the speed of the machines. A slot may then wait for an older result.
    #[serde(default)]
    pub reproducible: bool,
    #[serde(default)]
    pub seed: u64,
}

/// A metric and its goal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Objective {
    /// Name under which trials report it: a metric that every job has, such as `test_accuracy`, or
    /// one that the trials' program logs, such as `val/f1`.
    pub metric: String,
    pub goal: Goal,
    /// The study finishes when a trial reaches this value; `hyper_drive` predicts whether a trial
    /// will. With `reproducible`, only values at the end of rungs count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<f64>,
}

/// How far one trial trains at most.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Budget {
    /// In units of `unit`; 1 to 1,000,000,000.
    pub max: u64,
    #[serde(default)]
    pub unit: BudgetUnit,
    /// Field in which a command gets its budget, such as `command.env.EPOCHS`. The built-in engine
    /// needs none.
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
    /// Returns the objectives that only the trials' program logs, by their names.
    pub fn logged_objectives(&self) -> impl Iterator<Item = &str> {
        let names = self.objectives.iter().map(|one| one.metric.as_str());
        names.filter(|name| JobMetric::named(name).is_none())
    }

    /// Checks all rules and returns the space of the search.
    ///
    /// # Errors
    /// One [`FieldError`] per broken rule.
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
                !twice && (1..=MAX_NAME_BYTES).contains(&objective.metric.len()),
                &format!("a name of 1 to {MAX_NAME_BYTES} bytes that no other objective has"),
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

/// Errors found so far.
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

    /// Checks a number between two bounds.
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
