//! When jobs will start and end, with intervals: the real core runs forward from the live snapshot, many times, each time with other
//! speeds and other work left, as far apart as the estimators are unsure.

mod ahead;
mod calibrate;
mod like;
mod truth;

pub use ahead::{Ahead, Arrival, Fate, Pace};
pub use calibrate::{LEAST_SCORES, Score, TARGET, hits, widening};
pub use like::like;
pub use truth::{Curve, Truth};

use crate::cancel::Cancel;
use muster_core::ApplyError;
use muster_core::policy::Policy;
use muster_core::report::Length;
use muster_core::snapshot::{Job, Snapshot};
use muster_model::forecast::Unforeseen;
use muster_model::id::JobId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How forecasts are made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Runs; the quantiles are taken over them.
    pub runs: u32,
    pub seed: u64,
    /// What [`widening`] says of forecasts past; 1 while nothing is known.
    pub widen: f64,
    /// The same of starts.
    pub widen_starts: f64,
    pub pace: Pace,
}

/// What is to be expected of one job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    pub job: JobId,
    /// When it first runs; `None` when it has run already, or in a tenth of the runs never does.
    pub start: Option<Interval>,
    /// When it ends; `None` when in a tenth of the runs it does not, or nobody can tell.
    pub finish: Option<Interval>,
    /// Why nobody can tell when it ends.
    pub unforeseen: Option<Unforeseen>,
    /// Mean GPU-seconds that it will hold from now on; 0 where nobody can tell when it ends.
    pub gpu_s: f64,
    /// Mean number of times that it will be stopped to go on later.
    pub stops: f64,
}

/// Between `p10` and `p90` it falls in four cases of five. Unix time, milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    pub p10_ms: i64,
    pub p50_ms: i64,
    pub p90_ms: i64,
}

/// There is no forecast.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForecastError {
    /// The core made a plan that its own snapshot does not bear.
    #[error("run the core forward")]
    Run(#[from] ApplyError),
    #[error("cancelled before its end")]
    Cancelled,
}

/// Forecasts every job of the snapshot and of what is added to it, in that order. Looks at `cancel` between simulated rounds.
///
/// # Errors
/// [`ForecastError`].
pub fn forecast(
    snapshot: &Snapshot,
    added: &[Job],
    policy: &Policy,
    settings: &Settings,
    cancel: &Cancel,
) -> Result<Vec<Forecast>, ForecastError> {
    let mut full = snapshot.clone();
    full.jobs.extend_from_slice(added);
    full.sort();
    full.jobs.iter_mut().for_each(fix_worth);
    // Explanations take trial rounds, and nobody reads these.
    let policy = Policy {
        explained_jobs: 0,
        ..policy.clone()
    };
    let (believed, lengths) = judged(&full, &policy);
    // From here on the core knows of a program's length what it knows live.
    let programs = full.jobs.iter_mut().filter(|job| job.command.is_some());
    programs.for_each(|job| job.lasts = None);
    let mut fates: BTreeMap<JobId, Vec<Fate>> = BTreeMap::new();
    for run in 0..settings.runs {
        // A job has the same dice whoever is beside it, so that two forecasts differ by what has changed and not by chance.
        let throw = |(job, truth): (&JobId, &Truth)| {
            let mut dice = truth::Dice::new(settings.seed, *job, run);
            (*job, truth.thrown(&mut dice, run))
        };
        let truths = believed.iter().map(throw).collect();
        let ahead = Ahead::new(full.clone(), truths, Vec::new(), settings.pace);
        let mut ahead = ahead.cancelled_by(cancel);
        ahead.run(&policy)?;
        if cancel.is_cancelled() {
            return Err(ForecastError::Cancelled);
        }
        for fate in ahead.fates() {
            fates.entry(fate.job).or_default().push(fate);
        }
    }
    let are_open = lengths.values().any(|length| !length.is_known());
    let said = |job: &Job| {
        let fates = &fates[&job.id];
        let mut forecast = summary(job.id, fates, full.now_ms, settings);
        // It has not run yet, and in some of the runs it does: that it never does is not foreseen.
        let may_start =
            forecast.start.is_none() && fates.iter().any(|fate| fate.start_ms.is_some());
        let unforeseen = match lengths[&job.id] {
            _ if may_start => Some(Unforeseen::BehindOthers),
            Length::Unknown => Some(Unforeseen::NoLength),
            Length::Outlived => Some(Unforeseen::Outlived),
            Length::Said | Length::Past => {
                let ends = fates.iter().any(|fate| fate.finish_ms.is_some());
                let waits = forecast.finish.is_none() && ends && are_open;
                waits.then_some(Unforeseen::BehindOthers)
            }
        };
        if unforeseen.is_some() {
            (forecast.finish, forecast.gpu_s) = (None, 0.0);
        }
        forecast.unforeseen = unforeseen;
        forecast
    };
    Ok(full.jobs.iter().map(said).collect())
}

/// Takes what updates are worth now into what was measured of their speed: a forecast knows nothing of noise to come.
fn fix_worth(job: &mut Job) {
    for at in 0..job.speeds.len() {
        let gain = job.gain(job.speeds[at].workers);
        job.speeds[at].steps_per_s *= gain;
    }
    job.adaptive = None;
}

/// What the estimators believe of every job.
#[must_use]
pub fn believed(snapshot: &Snapshot, policy: &Policy) -> BTreeMap<JobId, Truth> {
    judged(snapshot, policy).0
}

/// The same, and what tells how long each job is.
fn judged(
    snapshot: &Snapshot,
    policy: &Policy,
) -> (BTreeMap<JobId, Truth>, BTreeMap<JobId, Length>) {
    let (_, report) = muster_core::plan(snapshot, policy);
    let pairs = || snapshot.jobs.iter().zip(&report.jobs);
    let truths = pairs().map(|(job, said)| (job.id, Truth::believed(job, said)));
    let lengths = pairs().map(|(job, said)| (job.id, said.length));
    (truths.collect(), lengths.collect())
}

fn summary(job: JobId, fates: &[Fate], now_ms: i64, settings: &Settings) -> Forecast {
    let mean = |value: fn(&Fate) -> f64| -> f64 {
        fates.iter().map(value).sum::<f64>() / fates.len().max(1) as f64
    };
    let interval = |time: fn(&Fate) -> Option<i64>, widen: f64| {
        quantiles(fates.iter().map(time).collect()).map(|found| found.widened(now_ms, widen))
    };
    Forecast {
        job,
        start: interval(|fate| fate.start_ms, settings.widen_starts),
        finish: interval(|fate| fate.finish_ms, settings.widen),
        unforeseen: None,
        gpu_s: mean(|fate| fate.gpu_s),
        stops: mean(|fate| f64::from(fate.stops)),
    }
}

/// `None` when the 90 % quantile does not exist, because too many runs never came so far.
fn quantiles(mut times: Vec<Option<i64>>) -> Option<Interval> {
    times.sort_by_key(|time| time.unwrap_or(i64::MAX));
    let last = times.len().checked_sub(1)?;
    let at = |share: f64| {
        // A share of at most 1 of a small number.
        let index = (share * last as f64).round() as usize;
        times[index.min(last)]
    };
    Some(Interval {
        p10_ms: at(0.1)?,
        p50_ms: at(0.5)?,
        p90_ms: at(0.9)?,
    })
}

impl Interval {
    /// The same middle, the distances from it multiplied (in the logarithm of the time from now) by `widen`, after a floor that
    /// gives room to what seemed certain.
    #[must_use]
    pub fn widened(self, now_ms: i64, widen: f64) -> Self {
        let (lower, upper) = calibrate::spreads(self, now_ms);
        let middle_s = calibrate::from_now_s(self.p50_ms, now_ms);
        let place = |spread: f64| {
            let seconds = middle_s * (spread * widen).exp() - calibrate::OFFSET_S;
            now_ms.saturating_add((seconds.clamp(0.0, 1e10) * 1000.0) as i64)
        };
        Self {
            p10_ms: place(-lower).min(self.p50_ms),
            p50_ms: self.p50_ms,
            p90_ms: place(upper).max(self.p50_ms),
        }
    }

    /// Whether that is when it came.
    #[must_use]
    pub fn holds(self, actual_ms: i64) -> bool {
        (self.p10_ms..=self.p90_ms).contains(&actual_ms)
    }
}
