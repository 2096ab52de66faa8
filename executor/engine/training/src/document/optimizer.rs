//! Conversion of update rules and schedules.

use muster_compute::optimizer::{Decay, Optimizer, Rule, Schedule};
use muster_model::spec;

/// The document's update rule with its schedule.
#[must_use]
pub fn optimizer(engine: &spec::Engine) -> Optimizer {
    Optimizer {
        rule: rule(&engine.optimizer),
        schedule: schedule(engine.schedule),
    }
}

/// An update rule with a constant learning rate.
#[must_use]
pub fn constant(of: &spec::Optimizer) -> Optimizer {
    Optimizer::new(rule(of))
}

/// Names of the state planes that the optimizer keeps per parameter.
#[must_use]
pub fn state_planes(of: &spec::Optimizer) -> &'static [&'static str] {
    constant(of).state_names()
}

fn rule(optimizer: &spec::Optimizer) -> Rule {
    match *optimizer {
        spec::Optimizer::Sgd {
            learning_rate: lr,
            momentum,
            nesterov,
            weight_decay,
        } => Rule::Sgd {
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
        } => Rule::Lars {
            lr,
            momentum,
            weight_decay,
            trust,
        },
        spec::Optimizer::Adagrad {
            learning_rate: lr,
            epsilon: eps,
            weight_decay,
        } => Rule::AdaGrad {
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
        } => Rule::RmsProp {
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
        } => Rule::Adam {
            lr,
            beta1,
            beta2,
            eps,
            weight_decay,
            decoupled,
        },
    }
}

fn schedule(schedule: spec::Schedule) -> Schedule {
    Schedule {
        warmup_steps: schedule.warmup_steps,
        decay: match schedule.decay {
            spec::Decay::Constant => Decay::Constant,
            spec::Decay::Cosine { total_steps, floor } => Decay::Cosine { total_steps, floor },
            spec::Decay::Step {
                every_steps,
                factor,
            } => Decay::Step {
                every_steps,
                factor,
            },
            spec::Decay::Polynomial { total_steps, power } => {
                Decay::Polynomial { total_steps, power }
            }
        },
    }
}
