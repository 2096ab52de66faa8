//! Remaining steps of a job, by the first of its possible ends: a maximum of steps, convergence, or
//! a duration.

use super::convergence::LastEpoch;
use crate::policy::Policy;
use crate::report::Length;
use crate::snapshot::{SnapshotJob, TrainingLength};

/// Distance of the 90 % quantile of a normal distribution from its median, in standard deviations.
const TO_90: f64 = 1.2816;
/// Maximum spread of the remaining time. A job near its expected end is treated as exponential.
const WIDEST: f64 = 1.0;
/// Standard deviations beyond which the durations of earlier jobs do not apply to a job.
const OUTLIVED: f64 = 2.5;
/// Share of the bound from which on earlier jobs count as ended by the bound.
const SOONER: f64 = 0.98;

/// Remaining steps; at least 1, because the job has not ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct StepsLeft {
    /// `low` and `high` are the ends of an 80 % confidence interval.
    pub low: f64,
    pub expected: f64,
    pub high: f64,
    pub length: Length,
}

impl StepsLeft {
    /// Returns the remaining steps. `steps_per_s` is the job's speed at its present size.
    pub(super) fn of(
        job: &SnapshotJob,
        policy: &Policy,
        converged: Option<LastEpoch>,
        steps_per_s: impl FnOnce() -> f64,
    ) -> Self {
        let by_steps = sooner(by_steps(job, converged), by_past_steps(job));
        let by_time = job.lasts.map(|lasts| by_time(&lasts, steps_per_s()));
        match (by_steps, by_time) {
            (Some(steps), Some(Some(time))) if time.expected < steps.expected => time,
            (Some(steps), _) => steps,
            (None, Some(Some(time))) => time,
            (None, Some(None)) => guessed(job, policy, Length::Outlived),
            (None, None) if job.ran.is_some() => guessed(job, policy, Length::Outlived),
            (None, None) => guessed(job, policy, Length::Unknown),
        }
    }
}

fn by_steps(job: &SnapshotJob, converged: Option<LastEpoch>) -> Option<StepsLeft> {
    Some(StepsLeft {
        low: steps_until(job, converged.map(|last| last.low))?,
        expected: steps_until(job, converged.map(|last| last.expected))?,
        high: steps_until(job, converged.map(|last| last.high))?,
        length: Length::Said,
    })
}

/// Returns the steps until the maximum of steps or the last epoch, the first of them.
fn steps_until(job: &SnapshotJob, last_epoch: Option<u64>) -> Option<f64> {
    let progress = &job.progress;
    let per_epoch = progress.steps_per_epoch.max(1);
    let by_convergence = last_epoch.map(|epoch| epoch.saturating_mul(per_epoch));
    let ends = [progress.max_steps, by_convergence].into_iter().flatten();
    let left = ends.map(|end| end.saturating_sub(progress.step)).min();
    left.map(|left| left.max(1) as f64)
}

/// Returns the rest by the steps of earlier jobs of the same document, for instance until a target
/// was reached. Returns `None` once the job has outlived them.
fn by_past_steps(job: &SnapshotJob) -> Option<StepsLeft> {
    let ran = job.ran?;
    let (left, away) = left_of(ran.steps, ran.steps_spread, job.progress.step as f64)?;
    let expected = left.max(1.0);
    Some(StepsLeft {
        low: (expected / away).max(1.0),
        expected,
        high: expected * away,
        length: Length::Said,
    })
}

/// Combines the stated bound with the past. The bound holds unless earlier jobs ended sooner.
fn sooner(said: Option<StepsLeft>, past: Option<StepsLeft>) -> Option<StepsLeft> {
    match (said, past) {
        (Some(said), Some(past)) if past.expected < SOONER * said.expected => Some(StepsLeft {
            high: past.high.min(said.high.max(past.expected)),
            ..past
        }),
        (Some(said), _) => Some(said),
        (None, past) => past,
    }
}

/// Returns the rest by a duration, or `None` if the job has outlived the durations of similar jobs.
fn by_time(lasts: &TrainingLength, steps_per_s: f64) -> Option<StepsLeft> {
    let (left_s, away) = left_of(lasts.middle_s, lasts.spread, lasts.done_s)?;
    let expected = (left_s * steps_per_s).max(1.0);
    Some(StepsLeft {
        low: (expected / away).max(1.0),
        expected,
        high: expected * away,
        length: Length::Past,
    })
}

/// Returns the rest of a length with this median and spread after `done`, and a factor. The 80 %
/// interval extends by this factor to both sides. Returns `None` beyond [`OUTLIVED`].
fn left_of(middle: f64, spread: f64, done: f64) -> Option<(f64, f64)> {
    let is_limit = spread <= 0.0;
    if !is_limit && done > middle * (OUTLIVED * spread).exp() {
        return None;
    }
    // Median of the rest of a length with this spread, given that it exceeds `done`.
    let left = (middle - done).max(spread * done / 2.0).max(0.0);
    let spread = (spread * middle / left.max(1e-3)).min(WIDEST);
    let away = if is_limit {
        1.0
    } else {
        (TO_90 * spread).exp()
    };
    Some((left, away))
}

/// Returns the default for policies, which need some number. It is never shown to users as a
/// forecast.
fn guessed(job: &SnapshotJob, policy: &Policy, length: Length) -> StepsLeft {
    let per_epoch = job.progress.steps_per_epoch.max(1);
    let guess = policy.unknown_epochs.saturating_mul(per_epoch).max(1) as f64;
    StepsLeft {
        low: guess,
        expected: guess,
        high: guess,
        length,
    }
}

#[cfg(test)]
mod tests {
    use super::{StepsLeft, TrainingLength, by_time, sooner};
    use crate::report::Length;

    fn steps(low: f64, expected: f64, high: f64) -> StepsLeft {
        StepsLeft {
            low,
            expected,
            high,
            length: Length::Said,
        }
    }

    #[test]
    fn earlier_jobs_count_when_they_ended_before_the_bound() {
        let bound = steps(1_000.0, 1_000.0, 1_000.0);
        let target = steps(300.0, 400.0, 2_000.0);
        let found = sooner(Some(bound), Some(target));
        assert_eq!(found, Some(steps(300.0, 400.0, 1_000.0)));
        let at_the_bound = steps(600.0, 999.9, 1_500.0);
        assert_eq!(sooner(Some(bound), Some(at_the_bound)), Some(bound));
        assert_eq!(sooner(None, Some(target)), Some(target));
        assert_eq!(sooner(Some(bound), None), Some(bound));
    }

    fn left(done_s: f64, spread: f64) -> Option<(f64, f64, f64)> {
        let lasts = TrainingLength {
            middle_s: 100.0,
            spread,
            done_s,
        };
        let left = by_time(&lasts, 2.0)?;
        assert_eq!(left.length, Length::Past);
        Some((left.low, left.expected, left.high))
    }

    #[test]
    fn earlier_durations_give_rest_until_job_outlives_them() {
        let (low, middle, high) = left(0.0, 0.2).expect("it is new");
        assert_eq!(middle, 200.0);
        assert!((150.0..160.0).contains(&low) && (255.0..262.0).contains(&high));
        let (low, middle, high) = left(100.0, 0.2).expect("half of them took longer");
        assert!(low < middle && middle < high && middle >= 20.0);
        assert_eq!(left(170.0, 0.2), None);
    }

    #[test]
    fn time_limit_is_certain_and_never_outlived() {
        assert_eq!(left(40.0, 0.0), Some((120.0, 120.0, 120.0)));
        assert_eq!(left(400.0, 0.0), Some((1.0, 1.0, 1.0)));
    }
}
