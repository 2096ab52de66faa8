//! A parameter as the user wrote it, in the form of Optuna or of Katib, and its domain.

use super::{Domain, Errors};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Maximum number of steps; beyond it floats do not represent every step.
const MOST_STEPS: f64 = 1e15;

/// A parameter of the search. Its value is written into the field of the job document that `field`
/// names, by default `name`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Parameter {
    /// 1 to 200 bytes, unique.
    pub name: String,
    /// Field of the job document for the value, such as `engine.optimizer.learning_rate` or
    /// `engine.model.hidden[0]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    #[serde(rename = "type", alias = "parameterType")]
    pub kind: ParameterKind,
    /// The smallest value; for numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// The largest value; for numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// Values are `low`, `low + step` and so on. Above 0; not with the log scale of a float.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<f64>,
    /// Search on the log scale of the value: as many trials between 0.001 and 0.01 as between 0.01
    /// and 0.1. `low` and `high` are values, never exponents as in some other tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<bool>,
    /// For categorical parameters: any JSON values, also whole lists of layers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choices: Option<Vec<Value>>,
    /// The choices have an order, so that neighbours are similar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordered: Option<bool>,
    /// Katib's form of the range, in place of `low` and the other fields.
    #[serde(
        default,
        rename = "feasibleSpace",
        skip_serializing_if = "Option::is_none"
    )]
    pub feasible_space: Option<FeasibleSpace>,
    /// Condition under which a trial has the parameter. Default: always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<Condition>,
}

/// A trial has the parameter only if another parameter has one of these values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Condition {
    /// Name of a categorical parameter that precedes this one.
    pub parameter: String,
    pub is: Vec<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum ParameterKind {
    #[serde(alias = "double")]
    Float,
    Int,
    Categorical,
    /// Katib's name for an ordered categorical of numbers.
    Discrete,
}

/// The range in Katib's form. Numbers may be written as text, as in Katib.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FeasibleSpace {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list: Option<Vec<Value>>,
    /// `uniform` or `logUniform`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distribution: Option<String>,
}

/// The range, independent of the form in which it was written.
struct Written {
    low: Option<f64>,
    high: Option<f64>,
    step: Option<f64>,
    log: bool,
    choices: Option<Vec<Value>>,
    /// Field names of the form that the user wrote, for errors.
    words: Words,
}

struct Words {
    low: &'static str,
    high: &'static str,
    step: &'static str,
    log: &'static str,
    choices: &'static str,
}

const OPTUNA: Words = Words {
    low: "low",
    high: "high",
    step: "step",
    log: "log",
    choices: "choices",
};
const KATIB: Words = Words {
    low: "feasibleSpace.min",
    high: "feasibleSpace.max",
    step: "feasibleSpace.step",
    log: "feasibleSpace.distribution",
    choices: "feasibleSpace.list",
};

impl Parameter {
    /// Returns the field of the job document for the value.
    #[must_use]
    pub fn target(&self) -> &str {
        self.field.as_deref().unwrap_or(&self.name)
    }

    /// Returns its domain. Errors are added to `errors` below the path `at`.
    pub(super) fn domain(&self, at: &str, errors: &mut Errors) -> Option<Domain> {
        let before = errors.0.len();
        let written = self.written(at, errors);
        let domain = match self.kind {
            ParameterKind::Float | ParameterKind::Int => self.number(at, &written, errors),
            ParameterKind::Categorical | ParameterKind::Discrete => {
                self.choice(at, written, errors)
            }
        };
        domain.filter(|_| errors.0.len() == before)
    }

    fn written(&self, at: &str, errors: &mut Errors) -> Written {
        let Some(space) = &self.feasible_space else {
            return Written {
                low: self.low,
                high: self.high,
                step: self.step,
                log: self.log.unwrap_or(false),
                choices: self.choices.clone(),
                words: OPTUNA,
            };
        };
        let twice = self.low.is_some()
            || self.high.is_some()
            || self.step.is_some()
            || self.log.is_some()
            || self.choices.is_some();
        errors.check(
            &format!("{at}.feasibleSpace"),
            "given beside low, high, step, log or choices",
            !twice,
            "one of the two ways to write a range",
        );
        let low = checked_number(&format!("{at}.{}", KATIB.low), &space.min, errors);
        let high = checked_number(&format!("{at}.{}", KATIB.high), &space.max, errors);
        let step = checked_number(&format!("{at}.{}", KATIB.step), &space.step, errors);
        let distribution = space.distribution.as_deref().unwrap_or("uniform");
        errors.check(
            &format!("{at}.feasibleSpace.distribution"),
            &format!("{distribution:?}"),
            matches!(distribution, "uniform" | "logUniform"),
            "uniform or logUniform",
        );
        Written {
            low,
            high,
            step,
            log: distribution == "logUniform",
            choices: space.list.clone(),
            words: KATIB,
        }
    }

    fn number(&self, at: &str, written: &Written, errors: &mut Errors) -> Option<Domain> {
        let words = &written.words;
        errors.check(
            &format!("{at}.{}", words.choices),
            "given",
            written.choices.is_none() && self.ordered.is_none(),
            "choices and ordered left out: a number has low and high",
        );
        let low = finite_end(&format!("{at}.{}", words.low), written.low, errors);
        let high = finite_end(&format!("{at}.{}", words.high), written.high, errors);
        let (low, high) = (low?, high?);
        errors.check(
            &format!("{at}.{}", words.low),
            &low.to_string(),
            low <= high,
            &format!("at most {} ({high})", words.high),
        );
        errors.check(
            &format!("{at}.{}", words.low),
            &low.to_string(),
            !written.log || low > 0.0,
            &format!("above 0, because {} asks for the log scale", words.log),
        );
        let span = high - low;
        errors.check(
            &format!("{at}.{}", words.high),
            &high.to_string(),
            span.is_finite(),
            &format!("a finite distance from {}", words.low),
        );
        self.check_step(at, written, span, errors);
        if self.kind == ParameterKind::Float {
            return Some(Domain::Float {
                low,
                high,
                step: written.step,
                log: written.log,
            });
        }
        for (word, value) in [(words.low, low), (words.high, high)] {
            let whole = value.fract() == 0.0 && value.abs() <= 9e15;
            let field = format!("{at}.{word}");
            errors.check(&field, &value.to_string(), whole, "a whole number");
        }
        Some(Domain::Int {
            low: low as i64,
            high: high as i64,
            step: written.step.map_or(1, |s| s as i64),
            log: written.log,
        })
    }

    fn check_step(&self, at: &str, written: &Written, span: f64, errors: &mut Errors) {
        let Some(step) = written.step else { return };
        let field = format!("{at}.{}", written.words.step);
        let shown = step.to_string();
        let whole = self.kind != ParameterKind::Int || step.fract() == 0.0;
        errors.check(
            &field,
            &shown,
            step.is_finite() && step > 0.0 && step <= span.max(1.0) && whole,
            "above 0, at most the range, and whole for an int",
        );
        errors.check(
            &field,
            &shown,
            !written.log,
            "left out: with the log scale values have no equal steps",
        );
        let (low, high) = (written.words.low, written.words.high);
        errors.check(
            &field,
            &shown,
            !(span.is_finite() && step > 0.0) || span / step <= MOST_STEPS,
            &format!("larger: at most 10^15 steps from {low} to {high}"),
        );
    }

    fn choice(&self, at: &str, written: Written, errors: &mut Errors) -> Option<Domain> {
        let words = &written.words;
        let numeric = written.low.is_some()
            || written.high.is_some()
            || written.step.is_some()
            || written.log;
        errors.check(
            &format!("{at}.{}", words.low),
            "given",
            !numeric,
            &format!("{} and nothing of a number's", words.choices),
        );
        let choices = written.choices.unwrap_or_default();
        let field = format!("{at}.{}", words.choices);
        errors.check(
            &field,
            &format!("{} choices", choices.len()),
            (1..=1000).contains(&choices.len()),
            "1 to 1000 choices",
        );
        let discrete = self.kind == ParameterKind::Discrete;
        let mut read: Vec<Value> = Vec::with_capacity(choices.len());
        for (i, choice) in choices.into_iter().enumerate() {
            let shown = choice.to_string();
            let value = if discrete {
                read_number(choice)
            } else {
                choice
            };
            let is_known = read
                .iter()
                .any(|other| match (other.as_f64(), value.as_f64()) {
                    (Some(a), Some(b)) if discrete => a == b,
                    _ => *other == value,
                });
            errors.check(
                &format!("{field}[{i}]"),
                &shown,
                !is_known,
                "a choice that does not stand there already",
            );
            read.push(value);
        }
        Some(Domain::Categorical {
            choices: read,
            ordered: self.ordered.unwrap_or(discrete),
        })
    }
}

/// Returns the number, which Katib writes as text.
fn checked_number(field: &str, value: &Option<Value>, errors: &mut Errors) -> Option<f64> {
    let value = value.as_ref()?;
    let read = match value {
        Value::String(text) => text.trim().parse().ok(),
        other => other.as_f64(),
    };
    let right = read.is_some();
    errors.check(field, &value.to_string(), right, "a number");
    read
}

/// Returns the end of a range if it is a finite number.
fn finite_end(field: &str, value: Option<f64>, errors: &mut Errors) -> Option<f64> {
    let shown = value.map_or("missing".to_owned(), |v| v.to_string());
    let finite = value.is_some_and(f64::is_finite);
    errors.check(field, &shown, finite, "a finite number");
    value.filter(|_| finite)
}

/// Katib writes discrete numbers as text.
fn read_number(value: Value) -> Value {
    match value.as_str().and_then(|t| serde_json::from_str(t).ok()) {
        Some(Value::Number(number)) => Value::Number(number),
        _ => value,
    }
}
