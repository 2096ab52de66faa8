//! Forecasts of starts and ends with intervals. The real core runs forward from the live snapshot
//! many times. Each run draws speeds and remaining work from the uncertainty of the estimators.

mod calibrate;
mod forecast_run;
mod like;
mod truth;

pub use calibrate::{Basis, Calibration, ForecastContext, Score, TARGET, hits};
pub use forecast_run::{ClusterDelays, ForecastArrival, ForecastJobResult, ForecastRun};
pub use like::{EarlierRun, like, ran};
pub use truth::{SpeedCurve, Truth, Whole};

use crate::cancel::Cancel;
use muster_core::ApplyError;
use muster_core::policy::Policy;
use muster_core::report::Length;
use muster_core::snapshot::{ClusterSnapshot, SnapshotJob};
use muster_model::forecast::Unforeseen;
use muster_model::id::JobId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Settings of a forecast.
#[derive(Debug, Clone, PartialEq)]
pub struct ForecastSettings {
    /// Number of runs for the quantiles.
    pub runs: u32,
    pub seed: u64,
    /// Calibration of ends.
    pub ends: Calibration,
    /// Calibration of starts.
    pub starts: Calibration,
    pub pace: ClusterDelays,
}

/// Forecast of one job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobForecast {
    pub job: JobId,
    /// First start; `None` if the job has run before, or if it never runs in a tenth of the runs.
    pub start: Option<ForecastInterval>,
    /// End; `None` if the job does not end in a tenth of the runs, or if its length is unknown.
    pub finish: Option<ForecastInterval>,
    /// Reason why no end is shown.
    pub unforeseen: Option<Unforeseen>,
    /// Mean GPU-seconds from now on; 0 if no end is known.
    pub gpu_s: f64,
    /// Mean number of stops after which the job starts again.
    pub stops: f64,
    /// Uncalibrated result, which scores this forecast later.
    pub raw: UncalibratedForecast,
}

/// Result of the runs before calibration, with its context.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct UncalibratedForecast {
    pub start: Option<ForecastInterval>,
    pub finish: Option<ForecastInterval>,
    pub context: ForecastContext,
}

/// Context of all starts. A start depends on other jobs, so the job's own basis does not count.
pub const STARTS: ForecastContext = ForecastContext {
    basis: Basis::Measured,
    waits: true,
};

/// 80 % interval of a time: the 10 %, 50 % and 90 % quantiles. Unix time in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForecastInterval {
    pub p10_ms: i64,
    pub p50_ms: i64,
    pub p90_ms: i64,
}

/// Reason why there is no forecast.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForecastRunError {
    /// A plan of the core does not apply to its own snapshot.
    #[error("run the core forward")]
    Run(#[from] ApplyError),
    #[error("cancelled before its end")]
    Cancelled,
}

/// Forecasts every job of the snapshot and of `added`, in that order. Polls `cancel` between
/// simulated rounds.
///
/// # Errors
/// [`ForecastRunError`].
pub fn forecast(
    snapshot: &ClusterSnapshot,
    added: &[SnapshotJob],
    policy: &Policy,
    settings: &ForecastSettings,
    cancel: &Cancel,
) -> Result<Vec<JobForecast>, ForecastRunError> {
    let mut full = snapshot.clone();
    full.jobs.extend_from_slice(added);
    full.sort();
    full.jobs.iter_mut().for_each(fix_worth);
    // Explanations need trial rounds and are not read here.
    let policy = Policy {
        explained_jobs: 0,
        ..policy.clone()
    };
    let (believed, lengths) = judged(&full, &policy);
    let contexts: BTreeMap<JobId, ForecastContext> = full
        .jobs
        .iter()
        .map(|job| (job.id, context(job, lengths[&job.id])))
        .collect();
    // From here on the core knows as much about lengths as live.
    for job in &mut full.jobs {
        job.ran = None;
        if job.command.is_some() {
            job.lasts = None;
        }
    }
    let mut results: BTreeMap<JobId, Vec<ForecastJobResult>> = BTreeMap::new();
    for run in 0..settings.runs {
        // A job has the same random numbers in every forecast. Two forecasts differ by changes of
        // the cluster and not by chance.
        let truths = believed
            .iter()
            .map(|(job, truth)| {
                let mut rng = truth::ForecastRng::new(settings.seed, *job, run);
                (*job, truth.thrown(&mut rng, run))
            })
            .collect();
        let forecast_run = ForecastRun::new(full.clone(), truths, Vec::new(), settings.pace);
        let mut forecast_run = forecast_run.cancelled_by(cancel);
        forecast_run.run(&policy)?;
        if cancel.is_cancelled() {
            return Err(ForecastRunError::Cancelled);
        }
        for result in forecast_run.results() {
            results.entry(result.job).or_default().push(result);
        }
    }
    let are_open = lengths.values().any(|length| !length.is_known());
    let forecasts = full.jobs.iter().map(|job| {
        let results = &results[&job.id];
        let mut forecast = summary(job.id, results, contexts[&job.id], full.now_ms, settings);
        // A start in some runs only is not a reliable start.
        let may_start =
            forecast.start.is_none() && results.iter().any(|result| result.start_ms.is_some());
        let unforeseen = match lengths[&job.id] {
            _ if may_start => Some(Unforeseen::BehindOthers),
            Length::Unknown => Some(Unforeseen::NoLength),
            Length::Outlived => Some(Unforeseen::Outlived),
            Length::Said | Length::Past => {
                let ends = results.iter().any(|result| result.finish_ms.is_some());
                let waits = forecast.finish.is_none() && ends && are_open;
                waits.then_some(Unforeseen::BehindOthers)
            }
        };
        if unforeseen.is_some() {
            (forecast.finish, forecast.gpu_s) = (None, 0.0);
            forecast.raw.finish = None;
        }
        forecast.unforeseen = unforeseen;
        forecast
    });
    Ok(forecasts.collect())
}

/// Multiplies measured speeds by the current gain of the batch size. A forecast cannot know the
/// future gradient noise. Where the coordinator chooses the batch, the speeds are in steps already.
fn fix_worth(job: &mut SnapshotJob) {
    if !job.batch_grows_with_workers() {
        return;
    }
    for at in 0..job.speeds.len() {
        let gain = job.gain(job.speeds[at].workers);
        job.speeds[at].steps_per_s *= gain;
    }
    job.adaptive = None;
}

/// Distributions of every job's speed and length, from the estimators.
#[must_use]
pub fn believed(snapshot: &ClusterSnapshot, policy: &Policy) -> BTreeMap<JobId, Truth> {
    judged(snapshot, policy).0
}

/// Same with the source of each job's length.
fn judged(
    snapshot: &ClusterSnapshot,
    policy: &Policy,
) -> (BTreeMap<JobId, Truth>, BTreeMap<JobId, Length>) {
    let (_, report) = muster_core::plan(snapshot, policy);
    let pairs = snapshot.jobs.iter().zip(&report.jobs);
    let truths = pairs
        .clone()
        .map(|(job, said)| (job.id, Truth::believed(job, said)));
    let lengths = pairs.map(|(job, said)| (job.id, said.length));
    (truths.collect(), lengths.collect())
}

fn context(job: &SnapshotJob, length: Length) -> ForecastContext {
    let is_measured = job.speeds.iter().any(|point| point.samples > 0);
    let basis = match (length, job.ran) {
        (Length::Past, _) => Basis::Lengths,
        _ if is_measured => Basis::Measured,
        (_, Some(_)) => Basis::Earlier,
        (_, None) => Basis::Guessed,
    };
    ForecastContext {
        basis,
        waits: job.revision == 0,
    }
}

fn mean_of(results: &[ForecastJobResult], value: fn(&ForecastJobResult) -> f64) -> f64 {
    results.iter().map(value).sum::<f64>() / results.len().max(1) as f64
}

fn summary(
    job: JobId,
    results: &[ForecastJobResult],
    context: ForecastContext,
    now_ms: i64,
    settings: &ForecastSettings,
) -> JobForecast {
    let raw = UncalibratedForecast {
        start: quantiles(results.iter().map(|result| result.start_ms).collect()),
        finish: quantiles(results.iter().map(|result| result.finish_ms).collect()),
        context,
    };
    let start = raw
        .start
        .map(|start| settings.starts.apply(start, STARTS, now_ms));
    let finish = raw.finish.map(|of_runs| {
        let shown = settings.ends.apply(of_runs, context, now_ms);
        let least_ms = least_duration_ms(results, of_runs, shown, now_ms);
        start.map_or(shown, |start| shown.after(start, least_ms))
    });
    JobForecast {
        job,
        start,
        finish,
        unforeseen: None,
        gpu_s: mean_of(results, |result| result.gpu_s),
        stops: mean_of(results, |result| f64::from(result.stops)),
        raw,
    }
}

/// Minimum duration from start to end over the runs, scaled down as the calibration scaled the 10 %
/// quantile of the end.
fn least_duration_ms(
    results: &[ForecastJobResult],
    of_runs: ForecastInterval,
    shown: ForecastInterval,
    now_ms: i64,
) -> i64 {
    let durations = results
        .iter()
        .filter_map(|result| Some(result.finish_ms?.saturating_sub(result.start_ms?)));
    let least_ms = durations.min().unwrap_or(0).max(0);
    let [shown_ms, of_runs_ms] = [shown, of_runs].map(|interval| {
        let left_ms = interval.p10_ms.saturating_sub(now_ms);
        left_ms.max(0) as f64
    });
    let share = shown_ms / of_runs_ms.max(1.0);
    (least_ms as f64 * share.min(1.0)) as i64
}

/// `None` if the 90 % quantile does not exist, because too many runs never reach the event.
fn quantiles(mut times: Vec<Option<i64>>) -> Option<ForecastInterval> {
    times.sort_by_key(|time| time.unwrap_or(i64::MAX));
    let last = times.len().checked_sub(1)?;
    let [p10_ms, p50_ms, p90_ms] = [0.1, 0.5, 0.9].map(|share| {
        // `share` is at most 1 and `last` is small.
        let index = (share * last as f64).round() as usize;
        times[index.min(last)]
    });
    Some(ForecastInterval {
        p10_ms: p10_ms?,
        p50_ms: p50_ms?,
        p90_ms: p90_ms?,
    })
}

impl ForecastInterval {
    /// Moves each quantile to at least the start's quantile plus `least_ms`.
    #[must_use]
    fn after(self, start: Self, least_ms: i64) -> Self {
        Self {
            p10_ms: self.p10_ms.max(start.p10_ms.saturating_add(least_ms)),
            p50_ms: self.p50_ms.max(start.p50_ms.saturating_add(least_ms)),
            p90_ms: self.p90_ms.max(start.p90_ms.saturating_add(least_ms)),
        }
    }

    /// Whether the interval contains `actual_ms`.
    #[must_use]
    pub fn holds(self, actual_ms: i64) -> bool {
        (self.p10_ms..=self.p90_ms).contains(&actual_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Basis, Calibration, ClusterDelays, ForecastContext, ForecastInterval, ForecastJobResult,
        ForecastSettings, Score, quantiles, summary,
    };
    use muster_model::id::JobId;
    use proptest::prelude::*;
    use uuid::Uuid;

    const NOW_MS: i64 = 1_700_000_000_000;

    fn settings(ends: Vec<Score>, starts: Vec<Score>) -> ForecastSettings {
        ForecastSettings {
            runs: 9,
            seed: 1,
            ends: Calibration::of(ends),
            starts: Calibration::of(starts),
            pace: ClusterDelays::LIVE,
        }
    }

    /// Milliseconds from now, from 0 to a year.
    fn times() -> impl Strategy<Value = i64> {
        (0.0..24.0_f64).prop_map(|log| log.exp() as i64 - 1)
    }

    fn scores() -> impl Strategy<Value = Vec<Score>> {
        let score = (times(), times(), times(), times(), any::<bool>());
        let score = score.prop_map(|(a, b, c, actual_ms, waits)| {
            let mut ends = [a, b, c];
            ends.sort_unstable();
            let interval = ForecastInterval {
                p10_ms: ends[0],
                p50_ms: ends[1],
                p90_ms: ends[2],
            };
            let basis = if waits {
                Basis::Earlier
            } else {
                Basis::Measured
            };
            Score::of(
                interval,
                0,
                ForecastContext { basis, waits },
                actual_ms,
                1.0,
            )
        });
        prop::collection::vec(score, 0..60)
    }

    proptest! {
        /// For all scores quantiles are in order, and no end precedes its start plus a duration.
        #[test]
        fn end_quantiles_are_not_before_start_quantiles(
            runs in prop::collection::vec((times(), times()), 1..12),
            ends in scores(),
            starts in scores(),
        ) {
            let results: Vec<ForecastJobResult> = runs
                .iter()
                .map(|(wait_ms, takes_ms)| ForecastJobResult {
                    job: JobId(Uuid::nil()),
                    start_ms: Some(NOW_MS + wait_ms),
                    finish_ms: Some(NOW_MS + wait_ms + 1 + takes_ms),
                    gpu_s: 1.0,
                    stops: 0,
                })
                .collect();
            let context = ForecastContext { basis: Basis::Earlier, waits: true };
            let made = summary(
                JobId(Uuid::nil()),
                &results,
                context,
                NOW_MS,
                &settings(ends, starts),
            );
            let (start, finish) = (made.start.expect("starts"), made.finish.expect("ends"));
            for interval in [start, finish] {
                prop_assert!(interval.p10_ms >= NOW_MS);
                prop_assert!(interval.p10_ms <= interval.p50_ms);
                prop_assert!(interval.p50_ms <= interval.p90_ms);
            }
            prop_assert!(start.p10_ms <= finish.p10_ms);
            prop_assert!(start.p50_ms <= finish.p50_ms);
            prop_assert!(start.p90_ms <= finish.p90_ms);
        }
    }

    #[test]
    fn end_is_at_least_shortest_duration_after_start() {
        let starts_ms = (0..11).map(|n| NOW_MS + 100_000 + 1_000 * n);
        let results: Vec<ForecastJobResult> = starts_ms
            .map(|start_ms| ForecastJobResult {
                job: JobId(Uuid::nil()),
                start_ms: Some(start_ms),
                finish_ms: Some(start_ms + 30_000),
                gpu_s: 1.0,
                stops: 0,
            })
            .collect();
        let context = ForecastContext {
            basis: Basis::Lengths,
            waits: true,
        };
        let raw =
            quantiles(results.iter().map(|result| result.start_ms).collect()).expect("starts");
        let late = Score::of(raw, NOW_MS, super::STARTS, NOW_MS + 1_000_000, 1.0);
        let made = summary(
            JobId(Uuid::nil()),
            &results,
            context,
            NOW_MS,
            &settings(Vec::new(), vec![late; 100]),
        );
        let (start, finish) = (made.start.expect("starts"), made.finish.expect("ends"));
        assert!(start.p50_ms > NOW_MS + 900_000, "{start:?}");
        assert!(finish.p10_ms >= start.p10_ms + 25_000, "{finish:?}");
    }
}
