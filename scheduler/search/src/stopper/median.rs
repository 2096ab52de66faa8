//! The median rule of Vizier (Golovin et al.): a trial's best loss so far against the median of what others had on average by then.

use crate::trial::{Trial, TrialNumber, TrialState};

/// `trials` is all of them. Those that have ended, by whatever rule, are compared with.
pub(super) fn is_behind(
    trials: &[Trial],
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
    let ended = |t: &&Trial| matches!(t.state, TrialState::Completed | TrialState::Stopped);
    let mut means: Vec<f64> = trials
        .iter()
        .filter(ended)
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

fn mean_until(trial: &Trial, step: u64) -> Option<f64> {
    let seen = trial.reports.iter().take_while(|r| r.step <= step);
    let (sum, count) = seen.fold((0.0, 0), |(sum, n), r| (sum + r.losses[0], n + 1));
    (count > 0).then(|| sum / f64::from(count))
}
