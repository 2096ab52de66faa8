//! What an optimizer is told, and the checks on it.

use super::schedule::Schedule;
use serde::{Deserialize, Serialize};

/// An update rule with its learning-rate schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Optimizer {
    pub rule: Rule,
    #[serde(default)]
    pub schedule: Schedule,
}

/// How a gradient changes a parameter. Weight decay is an L2 penalty, added to the gradient, in both rules.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Rule {
    /// v ← μ·v + g; p ← p − η·v, or with Nesterov's look-ahead p ← p − η·(g + μ·v) (Sutskever et al., 2013, as PyTorch writes it).
    Sgd {
        lr: f64,
        #[serde(default)]
        momentum: f64,
        #[serde(default)]
        nesterov: bool,
        #[serde(default)]
        weight_decay: f64,
    },
    /// Kingma and Ba, 2015, algorithm 1.
    Adam {
        lr: f64,
        #[serde(default = "default_beta1")]
        beta1: f64,
        #[serde(default = "default_beta2")]
        beta2: f64,
        #[serde(default = "default_eps")]
        eps: f64,
        #[serde(default)]
        weight_decay: f64,
    },
}

fn default_beta1() -> f64 {
    0.9
}

fn default_beta2() -> f64 {
    0.999
}

fn default_eps() -> f64 {
    1e-8
}

/// A number out of its range.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{field} is {value}; it must be {expected}")]
pub struct ConfigError {
    pub field: &'static str,
    pub value: f64,
    pub expected: &'static str,
}

impl Optimizer {
    /// With a constant learning rate.
    #[must_use]
    pub fn new(rule: Rule) -> Self {
        let schedule = Schedule::default();
        Self { rule, schedule }
    }

    /// # Errors
    /// Names the first number that is out of its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.rule.validate()?;
        self.schedule.validate()
    }

    /// Numbers of state per parameter.
    #[must_use]
    pub fn state_len_per_param(&self) -> usize {
        self.state_names().len()
    }

    /// Names of the state's numbers, in the order in which they lie in a state slice.
    #[must_use]
    pub fn state_names(&self) -> &'static [&'static str] {
        match self.rule {
            Rule::Sgd { momentum: 0.0, .. } => &[],
            Rule::Sgd { .. } => &["momentum"],
            Rule::Adam { .. } => &["first_moment", "second_moment"],
        }
    }
}

impl Rule {
    fn validate(self) -> Result<(), ConfigError> {
        let (lr, weight_decay) = match self {
            Self::Sgd {
                lr,
                momentum,
                nesterov,
                weight_decay,
            } => {
                fraction("momentum", momentum)?;
                if nesterov && momentum == 0.0 {
                    let (field, value, expected) = ("momentum", momentum, "above 0 with nesterov");
                    return Err(ConfigError {
                        field,
                        value,
                        expected,
                    });
                }
                (lr, weight_decay)
            }
            Self::Adam {
                lr,
                beta1,
                beta2,
                eps,
                weight_decay,
            } => {
                fraction("beta1", beta1)?;
                fraction("beta2", beta2)?;
                // Smaller ones are 0 in f32, and 0 / 0 follows wherever a gradient is 0.
                check("eps", eps, (1e-30..=1.0).contains(&eps), "1e-30 to 1")?;
                (lr, weight_decay)
            }
        };
        check("lr", lr, lr > 0.0 && lr <= 100.0, "above 0, at most 100")?;
        check(
            "weight_decay",
            weight_decay,
            (0.0..=1.0).contains(&weight_decay),
            "0 to 1",
        )
    }
}

fn fraction(field: &'static str, value: f64) -> Result<(), ConfigError> {
    check(field, value, (0.0..1.0).contains(&value), "0 to below 1")
}

pub(super) fn check(
    field: &'static str,
    value: f64,
    right: bool,
    expected: &'static str,
) -> Result<(), ConfigError> {
    if right {
        Ok(())
    } else {
        Err(ConfigError {
            field,
            value,
            expected,
        })
    }
}
