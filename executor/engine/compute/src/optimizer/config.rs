//! Configuration of an optimizer and its validation.

use super::schedule::LearningRateSchedule;
use serde::{Deserialize, Serialize};

/// Update rule with its learning-rate schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OptimizerConfig {
    pub rule: UpdateRule,
    #[serde(default)]
    pub schedule: LearningRateSchedule,
}

/// Update rule of a parameter. Weight decay is an L2 penalty, which is added to the gradient,
/// except where a rule declares it decoupled.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum UpdateRule {
    /// v ← μ·v + g; p ← p − η·v, or with Nesterov momentum p ← p − η·(g + μ·v) (Sutskever et al.,
    /// 2013, in PyTorch's form).
    Sgd {
        lr: f64,
        #[serde(default)]
        momentum: f64,
        #[serde(default)]
        nesterov: bool,
        #[serde(default)]
        weight_decay: f64,
    },
    /// v ← μ·v + η·λ·(g + β·p); p ← p − v, with λ = trust · ‖p‖ / (‖g‖ + β·‖p‖) per tensor (You,
    /// Gitman and Ginsburg, 2017). λ is 1 for biases and scales, and where a norm is 0. Each part
    /// of a tensor that is cut between PS shards has its own λ.
    Lars {
        lr: f64,
        #[serde(default)]
        momentum: f64,
        #[serde(default)]
        weight_decay: f64,
        #[serde(default = "default_trust")]
        trust: f64,
    },
    /// s ← s + g²; p ← p − η·g / (√s + ε) (Duchi, Hazan and Singer, 2011).
    #[serde(rename = "adagrad")]
    AdaGrad {
        lr: f64,
        #[serde(default = "default_adagrad_eps")]
        eps: f64,
        #[serde(default)]
        weight_decay: f64,
    },
    /// s ← ρ·s + (1 − ρ)·g²; v ← μ·v + g / (√s + ε); p ← p − η·v (Tieleman and Hinton, 2012;
    /// momentum as in PyTorch).
    #[serde(rename = "rmsprop")]
    RmsProp {
        lr: f64,
        #[serde(default = "default_rho")]
        rho: f64,
        #[serde(default = "default_eps")]
        eps: f64,
        #[serde(default)]
        momentum: f64,
        #[serde(default)]
        weight_decay: f64,
    },
    /// Kingma and Ba, 2015, algorithm 1. With decoupled decay it is AdamW: p ← (1 − η·β)·p before
    /// the update (Loshchilov and Hutter, 2019).
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
        #[serde(default)]
        decoupled: bool,
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

fn default_adagrad_eps() -> f64 {
    1e-10
}

fn default_rho() -> f64 {
    0.99
}

fn default_trust() -> f64 {
    0.001
}

/// Value outside of its range.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{field} is {value}; it must be {expected}")]
pub struct HyperparameterError {
    pub field: &'static str,
    pub value: f64,
    pub expected: &'static str,
}

impl OptimizerConfig {
    /// Optimizer with a constant learning rate.
    #[must_use]
    pub fn new(rule: UpdateRule) -> Self {
        let schedule = LearningRateSchedule::default();
        Self { rule, schedule }
    }

    /// # Errors
    /// Names the first value that is outside of its range.
    pub fn validate(&self) -> Result<(), HyperparameterError> {
        self.rule.validate()?;
        self.schedule.validate()
    }

    /// Returns this optimizer with its learning rate multiplied by `share`.
    #[must_use]
    pub fn slowed(&self, share: f32) -> Self {
        let mut slowed = self.clone();
        *slowed.rule.lr_mut() *= f64::from(share);
        slowed
    }

    /// Returns the optimizer of a single update. Its constant rate is the scheduled rate at `step`,
    /// multiplied by `gain`.
    #[must_use]
    pub fn for_one(&self, step: u64, gain: f64) -> Self {
        let mut one = Self::new(self.rule);
        *one.rule.lr_mut() = self.learning_rate(step) * gain;
        one
    }

    /// Number of state elements per parameter.
    #[must_use]
    pub fn state_len_per_param(&self) -> usize {
        self.state_names().len()
    }

    /// Names of the state elements, in the order of a state slice.
    #[must_use]
    pub fn state_names(&self) -> &'static [&'static str] {
        match self.rule {
            UpdateRule::Sgd { momentum: 0.0, .. } | UpdateRule::Lars { momentum: 0.0, .. } => &[],
            UpdateRule::Sgd { .. } | UpdateRule::Lars { .. } => &["momentum"],
            UpdateRule::AdaGrad { .. } => &["square_sum"],
            UpdateRule::RmsProp { momentum: 0.0, .. } => &["square_mean"],
            UpdateRule::RmsProp { .. } => &["square_mean", "momentum"],
            UpdateRule::Adam { .. } => &["first_moment", "second_moment"],
        }
    }
}

impl UpdateRule {
    fn lr_mut(&mut self) -> &mut f64 {
        match self {
            Self::Sgd { lr, .. }
            | Self::Lars { lr, .. }
            | Self::AdaGrad { lr, .. }
            | Self::RmsProp { lr, .. }
            | Self::Adam { lr, .. } => lr,
        }
    }

    /// Learning rate before the schedule is applied.
    #[must_use]
    pub fn lr(self) -> f64 {
        match self {
            Self::Sgd { lr, .. }
            | Self::Lars { lr, .. }
            | Self::AdaGrad { lr, .. }
            | Self::RmsProp { lr, .. }
            | Self::Adam { lr, .. } => lr,
        }
    }

    fn weight_decay(self) -> f64 {
        match self {
            Self::Sgd { weight_decay, .. }
            | Self::Lars { weight_decay, .. }
            | Self::AdaGrad { weight_decay, .. }
            | Self::RmsProp { weight_decay, .. }
            | Self::Adam { weight_decay, .. } => weight_decay,
        }
    }

    fn validate(self) -> Result<(), HyperparameterError> {
        match self {
            Self::Sgd {
                momentum, nesterov, ..
            } => {
                fraction("momentum", momentum)?;
                let looks_ahead = !nesterov || momentum > 0.0;
                check("momentum", momentum, looks_ahead, "above 0 with nesterov")?;
            }
            Self::Lars {
                momentum, trust, ..
            } => {
                fraction("momentum", momentum)?;
                check(
                    "trust",
                    trust,
                    trust > 0.0 && trust <= 1.0,
                    "above 0, at most 1",
                )?;
            }
            Self::AdaGrad { eps, .. } => epsilon(eps)?,
            Self::RmsProp {
                rho, eps, momentum, ..
            } => {
                fraction("rho", rho)?;
                fraction("momentum", momentum)?;
                epsilon(eps)?;
            }
            Self::Adam {
                beta1, beta2, eps, ..
            } => {
                fraction("beta1", beta1)?;
                fraction("beta2", beta2)?;
                epsilon(eps)?;
            }
        }
        let (lr, decay) = (self.lr(), self.weight_decay());
        check("lr", lr, lr > 0.0 && lr <= 100.0, "above 0, at most 100")?;
        check(
            "weight_decay",
            decay,
            (0.0..=1.0).contains(&decay),
            "0 to 1",
        )
    }
}

/// Rejects an ε that is 0 in f32, because a gradient of 0 would then give 0 / 0.
fn epsilon(eps: f64) -> Result<(), HyperparameterError> {
    check("eps", eps, (1e-30..=1.0).contains(&eps), "1e-30 to 1")
}

fn fraction(field: &'static str, value: f64) -> Result<(), HyperparameterError> {
    check(field, value, (0.0..1.0).contains(&value), "0 to below 1")
}

pub(super) fn check(
    field: &'static str,
    value: f64,
    right: bool,
    expected: &'static str,
) -> Result<(), HyperparameterError> {
    if right {
        Ok(())
    } else {
        Err(HyperparameterError {
            field,
            value,
            expected,
        })
    }
}
