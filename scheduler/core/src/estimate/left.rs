//! Steps until a job ends, by whichever comes first of what can tell: its bound, its losses, or how long it is in seconds.

use super::convergence::LastEpoch;
use crate::policy::Policy;
use crate::report::Length;
use crate::snapshot::{Job, Lasts};

/// From the middle to the 90 % quantile of a normal distribution, in standard deviations.
const TO_90: f64 = 1.2816;
/// What is left of something that is as good as over is as long as that lasts: exponential, and hardly more can be said.
const WIDEST: f64 = 1.0;
/// Beyond so many standard deviations a job is none of those by whose length it was judged.
const OUTLIVED: f64 = 2.5;

/// At least one step, because it has not ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct StepsLeft {
    /// With `high` the ends of an 80 % confidence interval.
    pub low: f64,
    pub expected: f64,
    pub high: f64,
    pub length: Length,
}

impl StepsLeft {
    /// `steps_per_s` is its speed where it is.
    pub(super) fn of(
        job: &Job,
        policy: &Policy,
        converged: Option<LastEpoch>,
        steps_per_s: impl FnOnce() -> f64,
    ) -> Self {
        let by_steps = by_steps(job, converged);
        let by_time = job.lasts.map(|lasts| by_time(&lasts, steps_per_s()));
        match (by_steps, by_time) {
            (Some(steps), Some(Some(time))) if time.expected < steps.expected => time,
            (Some(steps), _) => steps,
            (None, Some(Some(time))) => time,
            (None, Some(None)) => guessed(job, policy, Length::Outlived),
            (None, None) => guessed(job, policy, Length::Unknown),
        }
    }
}

fn by_steps(job: &Job, converged: Option<LastEpoch>) -> Option<StepsLeft> {
    let progress = &job.progress;
    let per_epoch = progress.steps_per_epoch.max(1);
    let left = |last_epoch: Option<u64>| {
        let by_convergence = last_epoch.map(|epoch| epoch.saturating_mul(per_epoch));
        let ends = [progress.max_steps, by_convergence].into_iter().flatten();
        let left = ends.map(|end| end.saturating_sub(progress.step)).min();
        left.map(|left| left.max(1) as f64)
    };
    Some(StepsLeft {
        low: left(converged.map(|last| last.low))?,
        expected: left(converged.map(|last| last.expected))?,
        high: left(converged.map(|last| last.high))?,
        length: Length::Said,
    })
}

/// `None` for one that has lasted longer than any like it would.
fn by_time(lasts: &Lasts, steps_per_s: f64) -> Option<StepsLeft> {
    let &Lasts {
        middle_s,
        spread,
        done_s,
    } = lasts;
    let is_limit = spread <= 0.0;
    if !is_limit && done_s > middle_s * (OUTLIVED * spread).exp() {
        return None;
    }
    // The middle of what is left of a length with this spread, once the shorter ones are out of the question.
    let left_s = (middle_s - done_s).max(spread * done_s / 2.0).max(0.0);
    let spread = (spread * middle_s / left_s.max(1e-3)).min(WIDEST);
    let expected = (left_s * steps_per_s).max(1.0);
    let away = match is_limit {
        true => 1.0,
        false => (TO_90 * spread).exp(),
    };
    Some(StepsLeft {
        low: (expected / away).max(1.0),
        expected,
        high: expected * away,
        length: Length::Past,
    })
}

/// Policies must weigh it somehow. Nobody is told this as what is to come.
fn guessed(job: &Job, policy: &Policy, length: Length) -> StepsLeft {
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
    use super::{Lasts, by_time};
    use crate::report::Length;

    fn left(done_s: f64, spread: f64) -> Option<(f64, f64, f64)> {
        let lasts = Lasts {
            middle_s: 100.0,
            spread,
            done_s,
        };
        let left = by_time(&lasts, 2.0)?;
        assert_eq!(left.length, Length::Past);
        Some((left.low, left.expected, left.high))
    }

    #[test]
    fn what_others_took_tells_what_is_left_until_it_is_outlived() {
        let (low, middle, high) = left(0.0, 0.2).expect("it is new");
        assert_eq!(middle, 200.0);
        assert!((150.0..160.0).contains(&low) && (255.0..262.0).contains(&high));
        let (low, middle, high) = left(100.0, 0.2).expect("half of them took longer");
        assert!(low < middle && middle < high && middle >= 20.0);
        assert_eq!(left(170.0, 0.2), None);
    }

    #[test]
    fn a_limit_is_certain_and_never_outlived() {
        assert_eq!(left(40.0, 0.0), Some((120.0, 120.0, 120.0)));
        assert_eq!(left(400.0, 0.0), Some((1.0, 1.0, 1.0)));
    }
}
