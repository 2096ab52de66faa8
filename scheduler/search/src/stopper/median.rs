//! Median rule of Vizier (Golovin et al.): compares a trial's best loss so far with the median of
//! the other trials' mean losses up to that step.

use crate::trial::{SearchTrial, TrialNumber, TrialState};

/// `trials` contains all trials. The comparison uses those that have ended for any reason.
pub(super) fn is_behind(
    trials: &[SearchTrial],
    number: TrialNumber,
    startup: usize,
    warmup: u64,
) -> bool {
    let trial = &trials[number as usize];
    let Some(newest) = trial.reports.last() else {
        return false;
    };
    if newest.step < warmup.max(1) {
        return false;
    }
    let mut means: Vec<f64> = trials
        .iter()
        .filter(|t| matches!(t.state, TrialState::Completed | TrialState::Stopped))
        .filter_map(|t| mean_until(t, newest.step))
        .collect();
    if means.len() < startup {
        return false;
    }
    means.sort_by(f64::total_cmp);
    let median = means[means.len() / 2];
    let best = trial.reports.iter().map(|r| r.losses[0]);
    best.fold(f64::INFINITY, f64::min) > median
}

fn mean_until(trial: &SearchTrial, step: u64) -> Option<f64> {
    let seen = trial.reports.iter().take_while(|r| r.step <= step);
    let (sum, count) = seen.fold((0.0, 0), |(sum, n), r| (sum + r.losses[0], n + 1));
    (count > 0).then(|| sum / f64::from(count))
}
