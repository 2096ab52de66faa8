//! Expected gain from more training of each trial, which the scheduler uses to assign GPUs. Only
//! the order within a study counts.

use crate::curve::{LearningCurve, chance_to_reach};
use crate::study::{Study, StudyRecord};
use crate::trial::{SearchTrial, TrialNumber};
use muster_model::study::Stopper;

/// Expectation without reports: an opportunity, as any new trial.
const UNKNOWN: f64 = 0.5;

impl Study {
    /// Expectation of every trial that holds a slot, 0 (nothing) to 1.
    ///
    /// With HyperDrive it is the probability to reach the target, which yields its three classes.
    /// Otherwise it is the trial's rung, and within a rung the share of other trials that it beat
    /// after equal training.
    #[must_use]
    pub fn expectations(&self) -> Vec<(TrialNumber, f64)> {
        let record = self.record();
        let open = self.trials().iter().filter(|trial| trial.holds_slot());
        open.map(|trial| (trial.number, gain(record, trial)))
            .collect()
    }
}

fn gain(record: &StudyRecord, trial: &SearchTrial) -> f64 {
    let standing = match record.spec.stopper {
        Stopper::HyperDrive { min_points, .. } => {
            if trial.reports.len() < min_points as usize {
                return UNKNOWN;
            }
            let objective = &record.spec.objectives[0];
            let target = objective.goal.as_loss(objective.target.unwrap_or(f64::MIN));
            return chance_to_reach(
                &LearningCurve::of(trial),
                record.spec.budget.max as f64,
                target,
            );
        }
        _ => beaten(record, trial),
    };
    let rungs = record.trials.iter().map(|other| other.rungs.len()).max();
    let all = rungs.unwrap_or(0) as f64 + 1.0;
    (trial.rungs.len() as f64 + standing) / all
}

/// Share of the other trials with a higher loss after at most as much training.
fn beaten(record: &StudyRecord, trial: &SearchTrial) -> f64 {
    let Some(newest) = trial.reports.last() else {
        return UNKNOWN;
    };
    let others = record
        .trials
        .iter()
        .filter(|other| other.number != trial.number);
    let losses: Vec<f64> = others
        .filter_map(|other| {
            let until = other.reports.partition_point(|r| r.step <= newest.step);
            Some(other.reports[..until].last()?.losses[0])
        })
        .collect();
    if losses.is_empty() {
        return UNKNOWN;
    }
    let worse = losses.iter().filter(|loss| **loss > newest.losses[0]);
    worse.count() as f64 / losses.len() as f64
}
