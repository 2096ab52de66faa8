//! The `stop` part of the job document as a pure function: when training ends.

use muster_model::progress::Evaluation;
use muster_model::spec::{JobSpec, Stop};

/// Progress of training.
#[derive(Debug, Clone, Copy)]
pub struct TrainingProgress<'a> {
    pub step: u64,
    pub steps_per_epoch: u64,
    /// Mean training loss of every whole epoch.
    pub epoch_losses: &'a [f64],
    /// Newest evaluation.
    pub evaluation: Option<&'a Evaluation>,
    /// Seconds of training over the job's whole life.
    pub trained_s: f64,
}

/// Returns why training ends, as text for users; `None` while it continues. If several rules are
/// met, returns the most informative one.
#[must_use]
pub fn reached(stop: &Stop, standing: TrainingProgress<'_>) -> Option<String> {
    target(stop, standing)
        .or_else(|| convergence(stop, standing))
        .or_else(|| {
            let epochs = stop.epochs?;
            (standing.step >= epochs.saturating_mul(standing.steps_per_epoch))
                .then(|| format!("trained {}", counted(epochs, "epoch")))
        })
        .or_else(|| {
            let steps = stop.steps?;
            (standing.step >= steps).then(|| format!("trained {}", counted(steps, "step")))
        })
        .or_else(|| {
            let minutes = stop.wall_minutes?;
            (standing.trained_s >= minutes * 60.0).then(|| format!("trained for {minutes} minutes"))
        })
}

/// Returns the latest step at which a worker must pause that does several steps at a time from
/// `step` on. This is the next step at which training ends, an evaluation is due or a checkpoint is
/// due.
#[must_use]
pub fn stops_before(spec: &JobSpec, steps_per_epoch: u64, step: u64) -> u64 {
    let (evaluate, checkpoint) = (&spec.evaluate, &spec.checkpoint);
    let every = [
        Some(steps_per_epoch),
        evaluate.every_steps,
        checkpoint.every_steps,
        checkpoint.keep_every_steps,
    ];
    let ends = every
        .into_iter()
        .flatten()
        .map(|every| (step / every.max(1) + 1) * every.max(1));
    let last = spec.stop.steps.filter(|&last| last > step);
    ends.chain(last).min().unwrap_or(step + 1)
}

fn target(stop: &Stop, standing: TrainingProgress<'_>) -> Option<String> {
    let (target, evaluation) = (stop.target.as_ref()?, standing.evaluation?);
    let value = target
        .metric
        .of_evaluation(evaluation.loss, evaluation.accuracy)?;
    target.is_met(value).then(|| target.reason(value))
}

/// Each of the last `epochs` epochs needs an epoch before it to be compared with.
fn convergence(stop: &Stop, standing: TrainingProgress<'_>) -> Option<String> {
    let rule = stop.convergence?;
    let drops: Vec<f64> = standing
        .epoch_losses
        .windows(2)
        .map(|pair| (pair[0] - pair[1]) / pair[0])
        .collect();
    let wanted = usize::try_from(rule.epochs).ok()?;
    let last = &drops[drops.len().checked_sub(wanted)?..];
    last.iter()
        .all(|&drop| drop < rule.relative_loss_drop)
        .then(|| {
            format!(
                "converged: the loss fell by less than {} of itself in each of the last {}",
                rule.relative_loss_drop,
                counted(rule.epochs, "epoch")
            )
        })
}

fn counted(count: u64, noun: &str) -> String {
    if count == 1 {
        format!("1 {noun}")
    } else {
        format!("{count} {noun}s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::progress::Split;
    use muster_model::spec::{Convergence, Metric, Target};

    fn standing(step: u64, epoch_losses: &[f64]) -> TrainingProgress<'_> {
        TrainingProgress {
            step,
            steps_per_epoch: 10,
            epoch_losses,
            evaluation: None,
            trained_s: 0.0,
        }
    }

    #[test]
    fn epochs_steps_and_minutes_end_training_at_their_number() {
        let stop = Stop {
            epochs: Some(2),
            ..Stop::default()
        };
        assert_eq!(reached(&stop, standing(19, &[])), None);
        assert_eq!(
            reached(&stop, standing(20, &[])).unwrap(),
            "trained 2 epochs"
        );
        let stop = Stop {
            steps: Some(1),
            ..Stop::default()
        };
        assert_eq!(reached(&stop, standing(0, &[])), None);
        assert_eq!(reached(&stop, standing(1, &[])).unwrap(), "trained 1 step");
        let stop = Stop {
            wall_minutes: Some(0.5),
            ..Stop::default()
        };
        let mut at = standing(1, &[]);
        at.trained_s = 29.9;
        assert_eq!(reached(&stop, at), None);
        at.trained_s = 30.0;
        assert!(reached(&stop, at).is_some());
    }

    fn meets_target(metric: Metric, value: f64, evaluation: &Evaluation) -> bool {
        let stop = Stop {
            target: Some(Target {
                metric,
                value,
                goal: None,
            }),
            ..Stop::default()
        };
        let at = TrainingProgress {
            evaluation: Some(evaluation),
            ..standing(10, &[])
        };
        reached(&stop, at).is_some()
    }

    #[test]
    fn accuracy_target_is_a_minimum_and_loss_target_a_maximum() {
        let mut evaluation = Evaluation {
            step: 10,
            epoch: 1.0,
            split: Split::Test,
            loss: Some(0.5),
            accuracy: Some(0.8),
        };
        assert!(!meets_target(Metric::TestAccuracy, 0.81, &evaluation));
        assert!(meets_target(Metric::TestAccuracy, 0.8, &evaluation));
        assert!(!meets_target(Metric::TestLoss, 0.49, &evaluation));
        evaluation.loss = Some(0.4);
        assert!(meets_target(Metric::TestLoss, 0.49, &evaluation));
    }

    #[test]
    fn convergence_needs_every_one_of_the_last_epochs() {
        let stop = Stop {
            convergence: Some(Convergence {
                relative_loss_drop: 0.1,
                epochs: 2,
            }),
            ..Stop::default()
        };
        let cases: [(&[f64], bool, &str); 6] = [
            (&[], false, "no epoch"),
            (&[1.0, 0.95], false, "only one epoch has one before it"),
            (&[1.0, 0.95, 0.94], true, "two small drops"),
            (&[1.0, 0.95, 0.5], false, "the last one fell by more"),
            (&[1.0, 0.5, 0.49], false, "the one before fell by more"),
            (&[1.0, 0.5, 0.49, 0.6], true, "a rise is no drop"),
        ];
        for (losses, ends, why) in cases {
            let found = reached(&stop, standing(10, losses));
            assert_eq!(found.is_some(), ends, "{why}");
        }
    }
}
