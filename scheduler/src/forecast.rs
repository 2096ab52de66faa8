//! Forecasts in the background. The real core runs forward from the live snapshot, and each job's
//! forecast is stored for users and for the calibration. No decision reads it.

use crate::clock;
use crate::compute;
use crate::passes;
use crate::translate::{self, date};
use muster_core::policy::Policy;
use muster_core::snapshot::{ClusterSnapshot, SnapshotJob};
use muster_model::forecast::{Forecast, Interval, Unforeseen};
use muster_model::id::JobId;
use muster_model::job::JobState;
use muster_sim::forecast as sim;
use muster_sim::what_if::DocumentHistory;
use muster_store::StoreError;
use muster_store::duration_history::JobDuration;
use muster_store::forecast::{self, ForecastOutcome, NewForecast, SimulatedForecast};
use muster_store::plan::{Loaded, Loader};
use muster_store::pool::{StorePool, in_time};
use std::collections::BTreeMap;
use std::time::Duration;

/// Minimum and maximum pause between forecasts. A forecast of a short job is outdated after
/// seconds, and a forecast of many jobs takes seconds.
const EVERY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));
/// Pause after a forecast, as a multiple of its duration.
const REST: u32 = 9;
/// Maximum duration of a forecast; a later result would be outdated.
const LIMIT: Duration = Duration::from_secs(300);
/// Age after which an unchanged forecast is stored again, so that users see that it is current. In
/// milliseconds.
const STALE_MS: i64 = 120_000;
/// Minimum change of a start or an end that is stored, as a share of the remaining time.
const MOVED: f64 = 0.1;
/// Minimum and maximum number of runs; fewer jobs get more runs.
const RUNS: (u32, u32) = (5, 41);
const JOBS_RUN: u32 = 1_500;
/// Constant, so that forecasts change with events and not by chance.
const SEED: u64 = 1;

/// Maximum number of queued jobs that a forecast covers, an equal part per tenant. Each run plans
/// every round until they have ended.
pub const WINDOW_JOBS: u32 = 250;

/// Last stored forecast of each job.
#[derive(Debug)]
pub struct LastForecasts {
    forecasts: BTreeMap<JobId, StoredForecast>,
    loader: Loader,
}

impl Default for LastForecasts {
    fn default() -> Self {
        Self {
            forecasts: BTreeMap::new(),
            loader: Loader::new(WINDOW_JOBS),
        }
    }
}

/// Time and content of a stored forecast.
#[derive(Debug, Clone, Copy)]
struct StoredForecast {
    at_ms: i64,
    start: Option<sim::ForecastInterval>,
    finish: Option<sim::ForecastInterval>,
    unforeseen: Option<Unforeseen>,
}

/// Evidence besides the snapshot: errors of earlier forecasts, and delays of the cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct ForecastEvidence {
    pub ends: sim::Calibration,
    pub starts: sim::Calibration,
    pub pace: sim::ClusterDelays,
}

impl ForecastEvidence {
    /// Evidence of a cluster without history.
    pub const NOTHING: Self = Self {
        ends: sim::Calibration::none(),
        starts: sim::Calibration::none(),
        pace: sim::ClusterDelays::LIVE,
    };
}

/// Reason why a forecast failed; rounds are not affected.
#[derive(Debug, thiserror::Error)]
pub enum ForecastPassError {
    #[error("the store failed during the forecast")]
    Store(#[from] StoreError),
    #[error("run the core forward")]
    Run(#[from] sim::ForecastRunError),
    #[error("the run ahead broke off")]
    Broken(#[from] tokio::task::JoinError),
}

/// Forecasts repeatedly.
pub async fn run(pool: &StorePool, policy: &Policy) {
    let mut told = LastForecasts::default();
    let (soonest, latest) = EVERY;
    let mut pause = soonest;
    loop {
        tokio::time::sleep(pause).await;
        let began = clock::instant();
        passes::one("forecasts", LIMIT, once(pool, policy, &mut told)).await;
        pause = began.elapsed().saturating_mul(REST).clamp(soonest, latest);
    }
}

/// Forecasts once. Returns the number of stored forecasts.
///
/// # Errors
/// [`ForecastPassError`].
#[tracing::instrument(name = "scheduler.forecast", skip_all)]
pub async fn once(
    pool: &StorePool,
    policy: &Policy,
    told: &mut LastForecasts,
) -> Result<usize, ForecastPassError> {
    let (snapshot, evidence) = live(pool, &mut told.loader).await?;
    if snapshot.jobs.is_empty() {
        told.forecasts.clear();
        return Ok(0);
    }
    let now_ms = snapshot.now_ms;
    let settings = settings(&snapshot, evidence);
    let policy = policy.clone();
    let made =
        compute::try_apart(move |cancel| sim::forecast(&snapshot, &[], &policy, &settings, cancel));
    let fresh: Vec<NewForecast> = told
        .news(made.await??, now_ms)
        .into_iter()
        .map(|one| NewForecast {
            job: one.job,
            forecast: shown(&one, now_ms),
            raw: raw(&one, now_ms),
        })
        .collect();
    if !fresh.is_empty() {
        in_time(keep(pool, &fresh)).await?;
    }
    Ok(fresh.len())
}

async fn keep(pool: &StorePool, fresh: &[NewForecast]) -> Result<(), StoreError> {
    let mut tx = muster_store::pool::begin(pool).await?;
    forecast::insert(&mut tx, fresh).await?;
    tx.commit().await.map_err(StoreError::from)
}

/// Current snapshot with evidence of earlier jobs of the same documents, and other evidence.
///
/// # Errors
/// [`StoreError`].
pub async fn live(
    pool: &StorePool,
    loader: &mut Loader,
) -> Result<(ClusterSnapshot, ForecastEvidence), StoreError> {
    let read = in_time(read(pool, loader)).await?;
    Ok(compute::apart(move || known(read)).await)
}

struct ForecastInputs {
    loaded: Loaded,
    ends: Vec<ForecastOutcome>,
    starts: Vec<ForecastOutcome>,
    /// Earlier jobs of each job's document.
    past: BTreeMap<JobId, Vec<JobDuration>>,
    around_s: Option<f64>,
}

async fn read(pool: &StorePool, loader: &mut Loader) -> Result<ForecastInputs, StoreError> {
    let mut tx = muster_store::pool::begin_snapshot(pool).await?;
    let loaded = loader.load(&mut tx, clock::now()).await?;
    let jobs: Vec<JobId> = loaded.jobs.iter().map(|job| job.job.id).collect();
    let read = ForecastInputs {
        ends: forecast::outcomes(&mut tx).await?,
        starts: forecast::start_outcomes(&mut tx).await?,
        past: muster_store::duration_history::of_jobs(&mut tx, &jobs).await?,
        around_s: forecast::around_s(&mut tx).await?,
        loaded,
    };
    tx.commit().await.map_err(StoreError::from)?;
    Ok(read)
}

fn known(read: ForecastInputs) -> (ClusterSnapshot, ForecastEvidence) {
    let mut snapshot = translate::snapshot(0, read.loaded);
    let now_ms = snapshot.now_ms;
    for job in &mut snapshot.jobs {
        if let Some(earlier) = read.past.get(&job.id) {
            let counts_steps = job.command.is_none() || job.progress.max_steps.is_some();
            let least = (job.workers.min, job.ps_shards.min);
            let past = past(counts_steps, least, earlier, done_s(job, now_ms));
            job.lasts = past.lasts.or(job.lasts);
            job.ran = past.ran;
        }
    }
    let ends = read.ends.iter().filter_map(end_score);
    let starts = read.starts.iter().filter_map(start_score);
    let evidence = ForecastEvidence {
        ends: sim::Calibration::of(ends.collect()),
        starts: sim::Calibration::of(starts.collect()),
        pace: pace(read.around_s),
    };
    (snapshot, evidence)
}

/// Evidence from earlier jobs of a document: their durations if the program counts no steps,
/// otherwise steps and speed. `least` is the smallest size of the job, `done_s` its training time
/// so far.
#[must_use]
pub fn past(
    counts_steps: bool,
    least: (u32, u32),
    earlier: &[JobDuration],
    done_s: f64,
) -> DocumentHistory {
    if !counts_steps {
        let took_s: Vec<f64> = earlier.iter().map(|one| one.took_s).collect();
        return DocumentHistory {
            lasts: sim::like(&took_s, done_s),
            ran: None,
        };
    }
    let told = earlier.iter().filter_map(|one| {
        Some(sim::EarlierRun {
            took_s: one.took_s,
            steps: one.steps?,
            size: one.size,
        })
    });
    let told: Vec<sim::EarlierRun> = told.collect();
    DocumentHistory {
        lasts: None,
        ran: sim::ran(&told, least),
    }
}

/// Delays as measured, if known: half of the time around a training precedes it.
fn pace(around_s: Option<f64>) -> sim::ClusterDelays {
    let Some(around_s) = around_s else {
        return sim::ClusterDelays::LIVE;
    };
    let half_ms = (around_s.clamp(0.2, 600.0) * 500.0) as i64;
    sim::ClusterDelays {
        launch_ms: half_ms,
        stop_ms: half_ms,
        ..sim::ClusterDelays::LIVE
    }
}

/// Seconds of work of a program that are done and will not be lost, as far as known.
fn done_s(job: &SnapshotJob, now_ms: i64) -> f64 {
    let keeps = job.restarts.is_some_and(|known| known.resumed > 0);
    match job.state {
        _ if keeps => job.trained_s,
        JobState::Running | JobState::Suspended => {
            // Without a checkpoint, work of an earlier revision is repeated.
            let since_ms = job.placed_ms.unwrap_or(now_ms);
            let since_s = now_ms.saturating_sub(since_ms).max(0) as f64 / 1000.0;
            job.trained_s.min(since_s)
        }
        JobState::Starting
        | JobState::Stopping { .. }
        | JobState::Queued
        | JobState::Paused
        | JobState::Succeeded
        | JobState::Failed { .. }
        | JobState::Cancelled => 0.0,
    }
}

/// Settings of a forecast. More jobs get fewer runs, so that a forecast takes seconds.
#[must_use]
pub fn settings(snapshot: &ClusterSnapshot, evidence: ForecastEvidence) -> sim::ForecastSettings {
    let jobs = u32::try_from(snapshot.jobs.len()).unwrap_or(u32::MAX);
    sim::ForecastSettings {
        runs: (JOBS_RUN / jobs.max(1)).clamp(RUNS.0, RUNS.1),
        seed: SEED,
        ends: evidence.ends,
        starts: evidence.starts,
        pace: evidence.pace,
    }
}

/// Forecast in stored form.
#[must_use]
pub fn shown(made: &sim::JobForecast, now_ms: i64) -> Forecast {
    Forecast {
        made_at: date(now_ms),
        start: made.start.map(|start| interval(start, now_ms)),
        finish: made.finish.map(|finish| interval(finish, now_ms)),
        gpu_s: made.gpu_s,
        unforeseen: made.unforeseen,
    }
}

/// Interval with dates, as of `now_ms`.
#[must_use]
pub fn interval(made: sim::ForecastInterval, now_ms: i64) -> Interval {
    let dates = (date(made.p10_ms), date(made.p50_ms), date(made.p90_ms));
    Interval::of(dates, date(now_ms))
}

/// Uncalibrated result, which scores the forecast after the event.
fn raw(made: &sim::JobForecast, now_ms: i64) -> SimulatedForecast {
    SimulatedForecast {
        basis: made.raw.context.basis.as_str().to_owned(),
        waits: made.raw.context.waits,
        start_s: made.raw.start.map(|start| left_s(start, now_ms)),
        finish_s: made.raw.finish.map(|finish| left_s(finish, now_ms)),
    }
}

/// Quantiles in seconds from `now_ms`.
fn left_s(interval: sim::ForecastInterval, now_ms: i64) -> [f64; 3] {
    let times_ms = [interval.p10_ms, interval.p50_ms, interval.p90_ms];
    times_ms.map(|at_ms| at_ms.saturating_sub(now_ms) as f64 / 1000.0)
}

/// `None` for a basis that this release does not know.
fn end_score(outcome: &ForecastOutcome) -> Option<sim::Score> {
    let context = sim::ForecastContext {
        basis: sim::Basis::from_name(&outcome.raw.basis)?,
        waits: outcome.raw.waits,
    };
    Some(score(outcome, outcome.raw.finish_s?, context))
}

fn start_score(outcome: &ForecastOutcome) -> Option<sim::Score> {
    Some(score(outcome, outcome.raw.start_s?, sim::STARTS))
}

fn score(outcome: &ForecastOutcome, raw_s: [f64; 3], context: sim::ForecastContext) -> sim::Score {
    let made_ms = translate::unix_ms(outcome.made_at);
    let [p10_ms, p50_ms, p90_ms] = raw_s.map(|s| made_ms + (s * 1000.0) as i64);
    let interval = sim::ForecastInterval {
        p10_ms,
        p50_ms,
        p90_ms,
    };
    let came_ms = translate::unix_ms(outcome.came_at);
    sim::Score::of(interval, made_ms, context, came_ms, outcome.weight)
}

impl LastForecasts {
    /// Returns the forecasts that differ from the stored ones, and records them as stored.
    fn news(&mut self, made: Vec<sim::JobForecast>, now_ms: i64) -> Vec<sim::JobForecast> {
        let before = std::mem::take(&mut self.forecasts);
        let mut news = Vec::new();
        for one in made {
            let known = before.get(&one.job);
            let same = known.is_some_and(|known| {
                now_ms - known.at_ms < STALE_MS
                    && known.unforeseen == one.unforeseen
                    && !moved(known.start, one.start, now_ms)
                    && !moved(known.finish, one.finish, now_ms)
            });
            match known {
                Some(known) if same => {
                    self.forecasts.insert(one.job, *known);
                }
                _ => {
                    let said = StoredForecast {
                        at_ms: now_ms,
                        start: one.start,
                        finish: one.finish,
                        unforeseen: one.unforeseen,
                    };
                    self.forecasts.insert(one.job, said);
                    news.push(one);
                }
            }
        }
        news
    }
}

fn moved(
    before: Option<sim::ForecastInterval>,
    now: Option<sim::ForecastInterval>,
    now_ms: i64,
) -> bool {
    let (Some(before), Some(now)) = (before, now) else {
        return before.is_some() != now.is_some();
    };
    let far = (now.p50_ms - now_ms).max(1_000) as f64 * MOVED;
    let shifts = [
        now.p10_ms - before.p10_ms,
        now.p50_ms - before.p50_ms,
        now.p90_ms - before.p90_ms,
    ];
    shifts.iter().any(|shift| shift.abs() as f64 > far)
}
