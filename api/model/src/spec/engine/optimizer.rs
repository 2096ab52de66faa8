//! Update rules and learning rate schedules.

use serde::{Deserialize, Serialize};

/// Update rule. `learning_rate` is above 0 and at most 100. `weight_decay`, 0 to below 1, is an L2
/// penalty that is added to the gradient.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Optimizer {
    Sgd {
        /// Above 0, at most 100.
        learning_rate: f64,
        /// 0 to below 1.
        #[serde(default)]
        momentum: f64,
        /// Nesterov momentum (Sutskever et al., 2013); `momentum` must be above 0.
        #[serde(default, skip_serializing_if = "is_false")]
        nesterov: bool,
        #[serde(default)]
        weight_decay: f64,
    },
    /// Layer-wise adaptive rates for large batches (You, Gitman and Ginsburg, 2017).
    Lars {
        learning_rate: f64,
        #[serde(default)]
        momentum: f64,
        #[serde(default)]
        weight_decay: f64,
        /// Share of a tensor's norm by which a step may change it; above 0, at most 1.
        #[serde(default = "default_trust")]
        trust: f64,
    },
    /// Duchi, Hazan and Singer, 2011.
    Adagrad {
        learning_rate: f64,
        #[serde(default = "default_adagrad_epsilon")]
        epsilon: f64,
        #[serde(default)]
        weight_decay: f64,
    },
    /// Tieleman and Hinton, 2012.
    Rmsprop {
        learning_rate: f64,
        /// Decay rate of the mean of squares; 0 to below 1.
        #[serde(default = "default_rho")]
        rho: f64,
        #[serde(default = "default_epsilon")]
        epsilon: f64,
        #[serde(default)]
        momentum: f64,
        #[serde(default)]
        weight_decay: f64,
    },
    /// Kingma and Ba, 2015.
    Adam {
        learning_rate: f64,
        #[serde(default = "default_beta1")]
        beta1: f64,
        #[serde(default = "default_beta2")]
        beta2: f64,
        #[serde(default = "default_epsilon")]
        epsilon: f64,
        #[serde(default)]
        weight_decay: f64,
        /// AdamW: the decay is not part of the gradient (Loshchilov and Hutter, 2019).
        #[serde(default, skip_serializing_if = "is_false")]
        decoupled: bool,
    },
}

/// Linear warm-up, then decay. Steps are updates of the parameters and count from the start of the
/// job. Under `ssp` and `asp` each push of a worker is one update.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Schedule {
    /// Steps over which the rate rises linearly; the last of them has the full rate (Goyal et al.,
    /// 2017).
    pub warmup_steps: u64,
    pub decay: Decay,
}

/// Course of the rate after warm-up. `total_steps` is larger than `warmup_steps`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Decay {
    #[default]
    Constant,
    /// Half a cosine down to `floor` times the rate at `total_steps`; constant afterwards
    /// (Loshchilov and Hutter, 2017).
    Cosine {
        total_steps: u64,
        /// 0 to 1.
        #[serde(default)]
        floor: f64,
    },
    /// Multiplies the rate by `factor` (above 0, at most 1) every `every_steps` steps.
    Step { every_steps: u64, factor: f64 },
    /// ((total − done) / total)^power times the rate; 0 from `total_steps` on.
    Polynomial {
        total_steps: u64,
        /// Above 0, at most 10; 1 is a straight line.
        #[serde(default = "default_power")]
        power: f64,
    },
}

impl Optimizer {
    /// Returns the learning rate before the schedule.
    #[must_use]
    pub fn learning_rate(&self) -> f64 {
        match *self {
            Self::Sgd { learning_rate, .. }
            | Self::Lars { learning_rate, .. }
            | Self::Adagrad { learning_rate, .. }
            | Self::Rmsprop { learning_rate, .. }
            | Self::Adam { learning_rate, .. } => learning_rate,
        }
    }

    /// Returns the kind as written in the document.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Sgd { .. } => "sgd",
            Self::Lars { .. } => "lars",
            Self::Adagrad { .. } => "adagrad",
            Self::Rmsprop { .. } => "rmsprop",
            Self::Adam { .. } => "adam",
        }
    }
}

impl Schedule {
    pub(super) fn is_constant(&self) -> bool {
        *self == Self::default()
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn default_trust() -> f64 {
    0.001
}

fn default_adagrad_epsilon() -> f64 {
    1e-10
}

fn default_rho() -> f64 {
    0.99
}

fn default_beta1() -> f64 {
    0.9
}

fn default_beta2() -> f64 {
    0.999
}

fn default_epsilon() -> f64 {
    1e-8
}

fn default_power() -> f64 {
    1.0
}
