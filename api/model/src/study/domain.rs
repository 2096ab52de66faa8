//! The values of one parameter, and their positions between 0 and 1, on which searchers work.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Domain of a parameter. Within the search a value is one f64, its inner value: the number, or the
/// index of a choice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Domain {
    Float {
        low: f64,
        high: f64,
        step: Option<f64>,
        log: bool,
    },
    Int {
        low: i64,
        high: i64,
        step: i64,
        log: bool,
    },
    Categorical {
        choices: Vec<Value>,
        ordered: bool,
    },
}

impl Domain {
    /// Returns the number of values; `None` if they are continuous.
    #[must_use]
    pub fn count(&self) -> Option<u64> {
        match self {
            Self::Float { low, high, .. } if low == high => Some(1),
            Self::Float {
                low,
                high,
                step: Some(step),
                ..
            } => Some(((high - low) / step + 1e-9).floor() as u64 + 1),
            Self::Float { .. } => None,
            Self::Int {
                low, high, step, ..
            } => Some(((high - low) / step) as u64 + 1),
            Self::Categorical { choices, .. } => Some(choices.len() as u64),
        }
    }

    /// Whether distances between values are meaningful.
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        !matches!(self, Self::Categorical { ordered: false, .. })
    }

    /// Returns the value at the position `unit` (0 to 1, clamped). The values of a finite domain
    /// divide the positions equally, or on the log scale by their widths there.
    #[must_use]
    pub fn at(&self, unit: f64) -> f64 {
        // The logarithm and its inverse would miss the ends by a rounding error.
        if unit <= 0.0 {
            return self.least();
        }
        if unit >= 1.0 {
            return self.most();
        }
        let (low, high) = self.ends();
        self.snap(self.unscale(low + unit * (high - low)))
    }

    /// Returns the position of `value` between 0 and 1. A value of a finite domain has the middle
    /// of its part.
    #[must_use]
    pub fn unit(&self, value: f64) -> f64 {
        self.line().unit(value)
    }

    /// Returns the mapping from values to positions, for repeated use.
    #[must_use]
    pub fn line(&self) -> Line<'_> {
        let (low, high) = self.ends();
        Line {
            domain: self,
            low,
            high,
        }
    }

    /// Returns the value number `index` of a finite domain, counted from 0.
    #[must_use]
    pub fn nth(&self, index: u64) -> f64 {
        match self {
            Self::Float { low, step, .. } => self.snap(low + step.unwrap_or(0.0) * index as f64),
            Self::Int { low, step, .. } => (low + step * index as i64) as f64,
            Self::Categorical { .. } => index as f64,
        }
    }

    /// Returns the value as the user's document writes it.
    #[must_use]
    pub fn value(&self, inner: f64) -> Value {
        match self {
            Self::Float { .. } => Value::from(inner),
            Self::Int { .. } => Value::from(inner as i64),
            Self::Categorical { choices, .. } => choices[inner as usize].clone(),
        }
    }

    /// Returns the inner value of a value in a document; `None` if it is not in the domain.
    #[must_use]
    pub fn read(&self, value: &Value) -> Option<f64> {
        if let Self::Categorical { choices, .. } = self {
            let index = choices.iter().position(|c| c == value)?;
            return Some(index as f64);
        }
        value.as_f64().filter(|v| self.contains(*v))
    }

    /// Whether the inner value is exactly a value of the domain.
    #[must_use]
    pub fn contains(&self, inner: f64) -> bool {
        let inside = inner >= self.least() && inner <= self.most();
        let exact = matches!(self, Self::Float { step: None, .. }) || self.snap(inner) == inner;
        inside && exact
    }

    /// Returns the number that a constraint uses; `None` for a choice that is not a number.
    #[must_use]
    pub fn number(&self, inner: f64) -> Option<f64> {
        match self {
            Self::Categorical { choices, .. } => choices[inner as usize].as_f64(),
            _ => Some(inner),
        }
    }

    /// Returns the smallest inner value.
    fn least(&self) -> f64 {
        match self {
            Self::Float { low, .. } => *low,
            Self::Int { low, .. } => *low as f64,
            Self::Categorical { .. } => 0.0,
        }
    }

    /// Returns the largest inner value. The last step counts even if rounding makes the quotient
    /// slightly too small.
    fn most(&self) -> f64 {
        match self {
            Self::Float {
                low,
                high,
                step: Some(step),
                ..
            } => low + ((high - low) / step + 1e-9).floor() * step,
            Self::Float { high, .. } => *high,
            Self::Int {
                low, high, step, ..
            } => (low + (high - low) / step * step) as f64,
            Self::Categorical { choices, .. } => choices.len() as f64 - 1.0,
        }
    }

    /// Returns the ends of the line on its scale: half a step outside the values of a finite
    /// domain.
    fn ends(&self) -> (f64, f64) {
        let half = match self {
            Self::Float { step, .. } => step.unwrap_or(0.0) / 2.0,
            Self::Int { step, .. } => *step as f64 / 2.0,
            Self::Categorical { .. } => 0.5,
        };
        (
            self.scale(self.least() - half),
            self.scale(self.most() + half),
        )
    }

    fn is_log(&self) -> bool {
        matches!(
            self,
            Self::Float { log: true, .. } | Self::Int { log: true, .. }
        )
    }

    /// Converts a value to the scale of the domain: its logarithm, or itself.
    fn scale(&self, value: f64) -> f64 {
        if self.is_log() { value.ln() } else { value }
    }

    fn unscale(&self, scaled: f64) -> f64 {
        if self.is_log() { scaled.exp() } else { scaled }
    }

    /// Returns the value of the domain that is nearest to `value`.
    fn snap(&self, value: f64) -> f64 {
        let (low, most) = (self.least(), self.most());
        let step = match self {
            Self::Float { step: None, .. } => return value.clamp(low, most),
            Self::Float {
                step: Some(step), ..
            } => *step,
            Self::Int { step, .. } => *step as f64,
            Self::Categorical { .. } => 1.0,
        };
        (low + ((value - low) / step).round() * step).clamp(low, most)
    }
}

/// Mapping of a domain's values to positions between 0 and 1, linear on the scale of the domain.
#[derive(Debug, Clone, Copy)]
pub struct Line<'a> {
    domain: &'a Domain,
    /// Positions 0 and 1 on the scale of the domain.
    low: f64,
    high: f64,
}

impl Line<'_> {
    /// Returns the position of `value` between 0 and 1. A value of a finite domain has the middle
    /// of its part.
    #[must_use]
    pub fn unit(&self, value: f64) -> f64 {
        if self.high <= self.low {
            return 0.5;
        }
        ((self.domain.scale(value) - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// Returns the width of the part of `value`, of 1 in total; 0 if the values are continuous.
    #[must_use]
    pub fn cell(&self, value: f64) -> f64 {
        let half = match self.domain {
            Domain::Float { step: None, .. } => return 0.0,
            Domain::Float {
                step: Some(step), ..
            } => step / 2.0,
            Domain::Int { step, .. } => *step as f64 / 2.0,
            Domain::Categorical { .. } => 0.5,
        };
        if self.high <= self.low {
            return 1.0;
        }
        (self.domain.scale(value + half) - self.domain.scale(value - half)) / (self.high - self.low)
    }
}
