//! Forecasts in the background: now and then the real core runs forward from the live snapshot, and what it says of each job's start
//! and end is kept, for its owner now and for the calibration later. No decision reads it.

use crate::clock;
use crate::compute;
use crate::passes;
use crate::translate::{self, date};
use muster_core::policy::Policy;
use muster_core::snapshot::{Job, Snapshot};
use muster_model::forecast::{Forecast, Interval, Unforeseen};
use muster_model::id::JobId;
use muster_model::job::JobState;
use muster_sim::forecast as sim;
use muster_store::StoreError;
use muster_store::forecast::{self, NewForecast, Outcome};
use muster_store::plan::{Loaded, Loader};
use muster_store::pool::{Pool, in_time};
use std::collections::BTreeMap;
use std::time::Duration;

/// Between two looks at the cluster.
const EVERY: Duration = Duration::from_secs(5);
/// Longest forecast; beyond it what it says is out of date.
const LIMIT: Duration = Duration::from_secs(300);
/// A forecast that says nothing new is made anew after so long, so that people see that it is of today.
const STALE_MS: i64 = 120_000;
/// A start or an end that moves by less than this share of the time left is no news.
const MOVED: f64 = 0.1;
/// Outcomes by which the intervals are calibrated.
const OUTCOMES: u32 = 500;
/// Runs of a forecast: few jobs are run often.
const RUNS: (u32, u32) = (5, 41);
const JOBS_RUN: u32 = 1_500;
/// The same always: forecasts then move with what happens and not by chance.
const SEED: u64 = 1;

/// Queued jobs that a forecast covers at most, an equal part of each tenant's: each run of it plans every round until they have ended.
pub const WINDOW_JOBS: u32 = 250;

/// What was last said of each job.
#[derive(Debug)]
pub struct Told {
    said: BTreeMap<JobId, Said>,
    loader: Loader,
}

impl Default for Told {
    fn default() -> Self {
        Self {
            said: BTreeMap::new(),
            loader: Loader::new(WINDOW_JOBS),
        }
    }
}

/// When, and what.
#[derive(Debug, Clone, Copy)]
struct Said {
    at_ms: i64,
    start: Option<sim::Interval>,
    finish: Option<sim::Interval>,
    unforeseen: Option<Unforeseen>,
}

/// By how much intervals are to be widened.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Widening {
    pub finish: f64,
    pub start: f64,
}

/// No forecast came about; rounds go on without.
#[derive(Debug, thiserror::Error)]
pub enum ForecastError {
    #[error("the store failed during the forecast")]
    Store(#[from] StoreError),
    #[error("run the core forward")]
    Run(#[from] sim::ForecastError),
    #[error("the run ahead broke off")]
    Broken(#[from] tokio::task::JoinError),
}

/// Forecasts now and then.
pub async fn run(pool: &Pool, policy: &Policy) {
    let mut told = Told::default();
    loop {
        tokio::time::sleep(EVERY).await;
        passes::one("forecasts", LIMIT, once(pool, policy, &mut told)).await;
    }
}

/// Forecasts once; how many forecasts said something new and were kept.
///
/// # Errors
/// [`ForecastError`].
#[tracing::instrument(name = "scheduler.forecast", skip_all)]
pub async fn once(pool: &Pool, policy: &Policy, told: &mut Told) -> Result<usize, ForecastError> {
    let (snapshot, widen) = live(pool, &mut told.loader).await?;
    if snapshot.jobs.is_empty() {
        told.said.clear();
        return Ok(0);
    }
    let now_ms = snapshot.now_ms;
    let settings = settings(&snapshot, widen);
    let policy = policy.clone();
    let made =
        compute::try_apart(move |cancel| sim::forecast(&snapshot, &[], &policy, &settings, cancel));
    let fresh: Vec<NewForecast> = told
        .news(made.await??, now_ms)
        .into_iter()
        .map(|one| NewForecast {
            job: one.job,
            forecast: shown(&one, now_ms),
            widen: widen.finish,
            start_widen: widen.start,
        })
        .collect();
    if !fresh.is_empty() {
        in_time(keep(pool, &fresh)).await?;
    }
    Ok(fresh.len())
}

async fn keep(pool: &Pool, fresh: &[NewForecast]) -> Result<(), StoreError> {
    let mut tx = muster_store::pool::begin(pool).await?;
    forecast::insert(&mut tx, fresh).await?;
    tx.commit().await.map_err(StoreError::from)
}

/// The cluster as it is, what is known of programs that name no length, and by how much intervals are to be widened.
///
/// # Errors
/// [`StoreError`].
pub async fn live(pool: &Pool, loader: &mut Loader) -> Result<(Snapshot, Widening), StoreError> {
    let read = in_time(read(pool, loader)).await?;
    Ok(compute::apart(move || known(read)).await)
}

struct Read {
    loaded: Loaded,
    finishes: Vec<Outcome>,
    starts: Vec<Outcome>,
    /// Seconds that programs like each job took.
    past: BTreeMap<JobId, Vec<f64>>,
}

async fn read(pool: &Pool, loader: &mut Loader) -> Result<Read, StoreError> {
    let mut tx = muster_store::pool::begin_snapshot(pool).await?;
    let loaded = loader.load(&mut tx, clock::now()).await?;
    let jobs: Vec<JobId> = loaded.jobs.iter().map(|job| job.job.id).collect();
    let read = Read {
        finishes: forecast::outcomes(&mut tx, OUTCOMES).await?,
        starts: forecast::start_outcomes(&mut tx, OUTCOMES).await?,
        past: muster_store::past::of_jobs(&mut tx, &jobs).await?,
        loaded,
    };
    tx.commit().await.map_err(StoreError::from)?;
    Ok(read)
}

fn known(read: Read) -> (Snapshot, Widening) {
    let mut snapshot = translate::snapshot(0, read.loaded);
    for job in &mut snapshot.jobs {
        let took_s = read.past.get(&job.id);
        let lasts = took_s.and_then(|took_s| sim::like(took_s, done_s(job, snapshot.now_ms)));
        job.lasts = lasts.or(job.lasts);
    }
    let widening = |outcomes: Vec<Outcome>| {
        let scores: Vec<sim::Score> = outcomes.iter().map(score).collect();
        sim::widening(&scores)
    };
    let widening = Widening {
        finish: widening(read.finishes),
        start: widening(read.starts),
    };
    (snapshot, widening)
}

/// Seconds of work that a program has done and that are kept, as far as is known.
fn done_s(job: &Job, now_ms: i64) -> f64 {
    let keeps = job.restarts.is_some_and(|known| known.resumed > 0);
    match job.state {
        _ if keeps => job.trained_s,
        JobState::Running | JobState::Suspended => {
            // What it did in an earlier revision it does once more.
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

/// Fewer runs of many jobs: a forecast takes seconds, not minutes.
#[must_use]
pub fn settings(snapshot: &Snapshot, widen: Widening) -> sim::Settings {
    let jobs = u32::try_from(snapshot.jobs.len()).unwrap_or(u32::MAX);
    sim::Settings {
        runs: (JOBS_RUN / jobs.max(1)).clamp(RUNS.0, RUNS.1),
        seed: SEED,
        widen: widen.finish,
        widen_starts: widen.start,
        pace: sim::Pace::LIVE,
    }
}

/// As it is kept and shown.
#[must_use]
pub fn shown(made: &sim::Forecast, now_ms: i64) -> Forecast {
    let interval = |interval: sim::Interval| Interval {
        p10: date(interval.p10_ms),
        p50: date(interval.p50_ms),
        p90: date(interval.p90_ms),
    };
    Forecast {
        made_at: date(now_ms),
        start: made.start.map(interval),
        finish: made.finish.map(interval),
        gpu_s: made.gpu_s,
        unforeseen: made.unforeseen,
    }
}

fn score(outcome: &Outcome) -> sim::Score {
    let ms = translate::unix_ms;
    let interval = sim::Interval {
        p10_ms: ms(outcome.interval.p10),
        p50_ms: ms(outcome.interval.p50),
        p90_ms: ms(outcome.interval.p90),
    };
    sim::Score::of(
        interval,
        ms(outcome.made_at),
        outcome.widen,
        ms(outcome.came_at),
    )
}

impl Told {
    /// Those that say something new, and from now on count as told.
    fn news(&mut self, made: Vec<sim::Forecast>, now_ms: i64) -> Vec<sim::Forecast> {
        let before = std::mem::take(&mut self.said);
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
                    self.said.insert(one.job, *known);
                }
                _ => {
                    let said = Said {
                        at_ms: now_ms,
                        start: one.start,
                        finish: one.finish,
                        unforeseen: one.unforeseen,
                    };
                    self.said.insert(one.job, said);
                    news.push(one);
                }
            }
        }
        news
    }
}

fn moved(before: Option<sim::Interval>, now: Option<sim::Interval>, now_ms: i64) -> bool {
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
