//! Rules of optimizers and schedules.

use super::Errors;
use crate::spec::{Decay, Optimizer, Schedule};

const AT: &str = "engine.optimizer";

impl Errors {
    pub(super) fn optimizer(&mut self, optimizer: &Optimizer) {
        let rate = optimizer.learning_rate();
        self.check(
            "engine.optimizer.learning_rate",
            &rate,
            rate > 0.0 && rate <= 100.0,
            "above 0 and at most 100",
        );
        match *optimizer {
            Optimizer::Sgd {
                momentum,
                nesterov,
                weight_decay,
                ..
            } => {
                self.shares(&[("momentum", momentum), ("weight_decay", weight_decay)]);
                self.check(
                    "engine.optimizer.nesterov",
                    &nesterov,
                    !nesterov || momentum > 0.0,
                    "false without momentum, along which it looks ahead",
                );
            }
            Optimizer::Lars {
                momentum,
                weight_decay,
                trust,
                ..
            } => {
                self.shares(&[("momentum", momentum), ("weight_decay", weight_decay)]);
                self.part("engine.optimizer.trust", trust);
            }
            Optimizer::Adagrad {
                epsilon,
                weight_decay,
                ..
            } => {
                self.shares(&[("weight_decay", weight_decay)]);
                self.epsilon(epsilon);
            }
            Optimizer::Rmsprop {
                rho,
                epsilon,
                momentum,
                weight_decay,
                ..
            } => {
                self.shares(&[
                    ("rho", rho),
                    ("momentum", momentum),
                    ("weight_decay", weight_decay),
                ]);
                self.epsilon(epsilon);
            }
            Optimizer::Adam {
                beta1,
                beta2,
                epsilon,
                weight_decay,
                ..
            } => {
                self.shares(&[
                    ("beta1", beta1),
                    ("beta2", beta2),
                    ("weight_decay", weight_decay),
                ]);
                self.epsilon(epsilon);
            }
        }
    }

    fn shares(&mut self, named: &[(&str, f64)]) {
        for (field, value) in named {
            self.share(&format!("{AT}.{field}"), *value);
        }
    }

    /// A smaller epsilon is 0 in single precision; a gradient of 0 would then give 0 / 0.
    fn epsilon(&mut self, epsilon: f64) {
        let right = (1e-30..=1.0).contains(&epsilon);
        self.check("engine.optimizer.epsilon", &epsilon, right, "1e-30 to 1");
    }

    pub(super) fn schedule(&mut self, schedule: &Schedule) {
        let warmup = schedule.warmup_steps;
        match schedule.decay {
            Decay::Constant => {}
            Decay::Cosine { total_steps, floor } => {
                self.total_steps(total_steps, warmup);
                let right = (0.0..=1.0).contains(&floor);
                self.check("engine.schedule.decay.floor", &floor, right, "0 to 1");
            }
            Decay::Polynomial { total_steps, power } => {
                self.total_steps(total_steps, warmup);
                self.check(
                    "engine.schedule.decay.power",
                    &power,
                    power > 0.0 && power <= 10.0,
                    "above 0 and at most 10",
                );
            }
            Decay::Step {
                every_steps,
                factor,
            } => {
                let right = every_steps > 0;
                self.check(
                    "engine.schedule.decay.every_steps",
                    &every_steps,
                    right,
                    "1 or more",
                );
                self.part("engine.schedule.decay.factor", factor);
            }
        }
    }

    fn total_steps(&mut self, total_steps: u64, warmup: u64) {
        self.check(
            "engine.schedule.decay.total_steps",
            &total_steps,
            total_steps > warmup,
            &format!("more than warmup_steps ({warmup})"),
        );
    }
}
