//! Learning rate as a function of the step.

use super::config::{HyperparameterError, check};
use serde::{Deserialize, Serialize};

/// Linear warm-up followed by decay. The default is a constant rate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LearningRateSchedule {
    /// Number of steps in which the rate rises linearly; the last of them has the full rate (Goyal
    /// et al., 2017).
    pub warmup_steps: u64,
    pub decay: LearningRateDecay,
}

/// Decay after warm-up. Steps count from the start of the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum LearningRateDecay {
    #[default]
    Constant,
    /// Half a cosine from the end of warm-up to `floor` times the rate at `total_steps`, constant
    /// afterwards (Loshchilov and Hutter, 2017).
    Cosine { total_steps: u64, floor: f64 },
    /// Multiplies the rate by `factor` every `every_steps` steps.
    Step { every_steps: u64, factor: f64 },
    /// ((total − done) / total)^power from the end of warm-up to 0 at `total_steps`, constant
    /// afterwards (the schedule of the authors of LARS).
    Polynomial { total_steps: u64, power: f64 },
}

impl LearningRateSchedule {
    /// Returns the factor of the rule's learning rate at `step`, which counts from 0.
    #[must_use]
    pub fn factor(&self, step: u64) -> f64 {
        if step < self.warmup_steps {
            return (step + 1) as f64 / self.warmup_steps as f64;
        }
        match self.decay {
            LearningRateDecay::Constant => 1.0,
            LearningRateDecay::Cosine { total_steps, floor } => {
                let done = self.done(step, total_steps);
                floor + (1.0 - floor) * 0.5 * (1.0 + (std::f64::consts::PI * done).cos())
            }
            LearningRateDecay::Step {
                every_steps,
                factor,
            } => factor.powf((step / every_steps) as f64),
            LearningRateDecay::Polynomial { total_steps, power } => {
                (1.0 - self.done(step, total_steps)).powf(power)
            }
        }
    }

    /// Returns the completed share of the decay at `step`, which is after warm-up.
    fn done(&self, step: u64, total_steps: u64) -> f64 {
        let span = total_steps.saturating_sub(self.warmup_steps).max(1);
        (step - self.warmup_steps).min(span) as f64 / span as f64
    }

    fn ends_after_warmup(&self, total_steps: u64) -> Result<(), HyperparameterError> {
        let right = total_steps > self.warmup_steps;
        check(
            "total_steps",
            total_steps as f64,
            right,
            "more than warmup_steps",
        )
    }

    pub(super) fn validate(&self) -> Result<(), HyperparameterError> {
        match self.decay {
            LearningRateDecay::Constant => Ok(()),
            LearningRateDecay::Cosine { total_steps, floor } => {
                check("floor", floor, (0.0..=1.0).contains(&floor), "0 to 1")?;
                self.ends_after_warmup(total_steps)
            }
            LearningRateDecay::Polynomial { total_steps, power } => {
                check(
                    "power",
                    power,
                    power > 0.0 && power <= 10.0,
                    "above 0, at most 10",
                )?;
                self.ends_after_warmup(total_steps)
            }
            LearningRateDecay::Step {
                every_steps,
                factor,
            } => {
                check(
                    "every_steps",
                    every_steps as f64,
                    every_steps > 0,
                    "1 or more",
                )?;
                check(
                    "factor",
                    factor,
                    factor > 0.0 && factor <= 1.0,
                    "above 0, at most 1",
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn factors(schedule: LearningRateSchedule, steps: &[u64]) -> Vec<f64> {
        steps
            .iter()
            .map(|&step| (schedule.factor(step) * 1e6).round() / 1e6)
            .collect()
    }

    fn schedule(decay: LearningRateDecay) -> LearningRateSchedule {
        LearningRateSchedule {
            warmup_steps: 4,
            decay,
        }
    }

    #[test]
    fn rate_rises_linearly_then_decays() {
        assert_eq!(
            factors(
                schedule(LearningRateDecay::Constant),
                &[0, 1, 3, 4, 1 << 40]
            ),
            [0.25, 0.5, 1.0, 1.0, 1.0]
        );
        let cosine = LearningRateDecay::Cosine {
            total_steps: 104,
            floor: 0.1,
        };
        assert_eq!(
            factors(schedule(cosine), &[0, 4, 54, 104, 1 << 40]),
            [0.25, 1.0, 0.55, 0.1, 0.1]
        );
        let step = LearningRateDecay::Step {
            every_steps: 10,
            factor: 0.5,
        };
        assert_eq!(factors(schedule(step), &[9, 10, 29]), [1.0, 0.5, 0.25]);
        let polynomial = LearningRateDecay::Polynomial {
            total_steps: 104,
            power: 2.0,
        };
        assert_eq!(
            factors(schedule(polynomial), &[0, 4, 54, 104, 1 << 40]),
            [0.25, 1.0, 0.25, 0.0, 0.0]
        );
        assert_eq!(
            factors(LearningRateSchedule::default(), &[0, 7]),
            [1.0, 1.0]
        );
    }
}
