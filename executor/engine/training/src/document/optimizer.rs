//! Conversion of update rules and schedules.

use muster_compute::optimizer::{
    LearningRateDecay, LearningRateSchedule, OptimizerConfig, UpdateRule,
};
use muster_model::spec;

/// The document's update rule with its schedule.
#[must_use]
pub fn optimizer(engine: &spec::Engine) -> OptimizerConfig {
    OptimizerConfig {
        rule: rule(&engine.optimizer),
        schedule: schedule(engine.schedule),
    }
}

/// An update rule with a constant learning rate.
#[must_use]
pub fn constant(of: &spec::Optimizer) -> OptimizerConfig {
    OptimizerConfig::new(rule(of))
}

/// Names of the state planes that the optimizer keeps per parameter.
#[must_use]
pub fn state_planes(of: &spec::Optimizer) -> &'static [&'static str] {
    constant(of).state_names()
}

fn rule(optimizer: &spec::Optimizer) -> UpdateRule {
    match *optimizer {
        spec::Optimizer::Sgd {
            learning_rate: lr,
            momentum,
            nesterov,
            weight_decay,
        } => UpdateRule::Sgd {
            lr,
            momentum,
            nesterov,
            weight_decay,
        },
        spec::Optimizer::Lars {
            learning_rate: lr,
            momentum,
            weight_decay,
            trust,
        } => UpdateRule::Lars {
            lr,
            momentum,
            weight_decay,
            trust,
        },
        spec::Optimizer::Adagrad {
            learning_rate: lr,
            epsilon: eps,
            weight_decay,
        } => UpdateRule::AdaGrad {
            lr,
            eps,
            weight_decay,
        },
        spec::Optimizer::Rmsprop {
            learning_rate: lr,
            rho,
            epsilon: eps,
            momentum,
            weight_decay,
        } => UpdateRule::RmsProp {
            lr,
            rho,
            eps,
            momentum,
            weight_decay,
        },
        spec::Optimizer::Adam {
            learning_rate: lr,
            beta1,
            beta2,
            epsilon: eps,
            weight_decay,
            decoupled,
        } => UpdateRule::Adam {
            lr,
            beta1,
            beta2,
            eps,
            weight_decay,
            decoupled,
        },
    }
}

fn schedule(schedule: spec::Schedule) -> LearningRateSchedule {
    LearningRateSchedule {
        warmup_steps: schedule.warmup_steps,
        decay: match schedule.decay {
            spec::Decay::Constant => LearningRateDecay::Constant,
            spec::Decay::Cosine { total_steps, floor } => {
                LearningRateDecay::Cosine { total_steps, floor }
            }
            spec::Decay::Step {
                every_steps,
                factor,
            } => LearningRateDecay::Step {
                every_steps,
                factor,
            },
            spec::Decay::Polynomial { total_steps, power } => {
                LearningRateDecay::Polynomial { total_steps, power }
            }
        },
    }
}
