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
use muster_sim::what_if::Past;
use muster_store::StoreError;
use muster_store::forecast::{self, NewForecast, Outcome, Raw};
use muster_store::past::Earlier;
use muster_store::plan::{Loaded, Loader};
use muster_store::pool::{Pool, in_time};
use std::collections::BTreeMap;
use std::time::Duration;

/// Between two looks at the cluster: a forecast of a job of seconds is out of date after seconds, and one of many jobs takes seconds.
const EVERY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));
/// A look is followed by so many times as long without one.
const REST: u32 = 9;
/// Longest forecast; beyond it what it says is out of date.
const LIMIT: Duration = Duration::from_secs(300);
/// A forecast that says nothing new is made anew after so long, so that people see that it is of today.
const STALE_MS: i64 = 120_000;
/// A start or an end that moves by less than this share of the time left is no news.
const MOVED: f64 = 0.1;
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

/// What is known beside the snapshot: what forecasts of the past missed, and how fast the cluster obeys.
#[derive(Debug, Clone, PartialEq)]
pub struct Learnt {
    pub ends: sim::Calibration,
    pub starts: sim::Calibration,
    pub pace: sim::Pace,
}

impl Learnt {
    /// Of a cluster on which nothing has happened.
    pub const NOTHING: Self = Self {
        ends: sim::Calibration::none(),
        starts: sim::Calibration::none(),
        pace: sim::Pace::LIVE,
    };
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
    let (soonest, latest) = EVERY;
    let mut pause = soonest;
    loop {
        tokio::time::sleep(pause).await;
        let began = clock::instant();
        passes::one("forecasts", LIMIT, once(pool, policy, &mut told)).await;
        pause = began.elapsed().saturating_mul(REST).clamp(soonest, latest);
    }
}

/// Forecasts once; how many forecasts said something new and were kept.
///
/// # Errors
/// [`ForecastError`].
#[tracing::instrument(name = "scheduler.forecast", skip_all)]
pub async fn once(pool: &Pool, policy: &Policy, told: &mut Told) -> Result<usize, ForecastError> {
    let (snapshot, learnt) = live(pool, &mut told.loader).await?;
    if snapshot.jobs.is_empty() {
        told.said.clear();
        return Ok(0);
    }
    let now_ms = snapshot.now_ms;
    let settings = settings(&snapshot, learnt);
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

async fn keep(pool: &Pool, fresh: &[NewForecast]) -> Result<(), StoreError> {
    let mut tx = muster_store::pool::begin(pool).await?;
    forecast::insert(&mut tx, fresh).await?;
    tx.commit().await.map_err(StoreError::from)
}

/// The cluster as it is, with what earlier jobs of the same documents tell, and what else is known.
///
/// # Errors
/// [`StoreError`].
pub async fn live(pool: &Pool, loader: &mut Loader) -> Result<(Snapshot, Learnt), StoreError> {
    let read = in_time(read(pool, loader)).await?;
    Ok(compute::apart(move || known(read)).await)
}

struct Read {
    loaded: Loaded,
    ends: Vec<Outcome>,
    starts: Vec<Outcome>,
    /// Earlier jobs of each job's document.
    past: BTreeMap<JobId, Vec<Earlier>>,
    around_s: Option<f64>,
}

async fn read(pool: &Pool, loader: &mut Loader) -> Result<Read, StoreError> {
    let mut tx = muster_store::pool::begin_snapshot(pool).await?;
    let loaded = loader.load(&mut tx, clock::now()).await?;
    let jobs: Vec<JobId> = loaded.jobs.iter().map(|job| job.job.id).collect();
    let read = Read {
        ends: forecast::outcomes(&mut tx).await?,
        starts: forecast::start_outcomes(&mut tx).await?,
        past: muster_store::past::of_jobs(&mut tx, &jobs).await?,
        around_s: forecast::around_s(&mut tx).await?,
        loaded,
    };
    tx.commit().await.map_err(StoreError::from)?;
    Ok(read)
}

fn known(read: Read) -> (Snapshot, Learnt) {
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
    let learnt = Learnt {
        ends: sim::Calibration::of(ends.collect()),
        starts: sim::Calibration::of(starts.collect()),
        pace: pace(read.around_s),
    };
    (snapshot, learnt)
}

/// What earlier jobs of a document tell: how long they took, if its program counts no steps, and else their steps and speed. `least` is
/// the least size of the job, `done_s` what it has done.
#[must_use]
pub fn past(counts_steps: bool, least: (u32, u32), earlier: &[Earlier], done_s: f64) -> Past {
    if !counts_steps {
        let took_s: Vec<f64> = earlier.iter().map(|one| one.took_s).collect();
        return Past {
            lasts: sim::like(&took_s, done_s),
            ran: None,
        };
    }
    let told = earlier.iter().filter_map(|one| {
        Some(sim::Earlier {
            took_s: one.took_s,
            steps: one.steps?,
            size: one.size,
        })
    });
    let told: Vec<sim::Earlier> = told.collect();
    Past {
        lasts: None,
        ran: sim::ran(&told, least),
    }
}

/// As fast as the cluster was, where that is known: half of the time around a training goes before it.
fn pace(around_s: Option<f64>) -> sim::Pace {
    let Some(around_s) = around_s else {
        return sim::Pace::LIVE;
    };
    let half_ms = (around_s.clamp(0.2, 600.0) * 500.0) as i64;
    sim::Pace {
        launch_ms: half_ms,
        stop_ms: half_ms,
        ..sim::Pace::LIVE
    }
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
pub fn settings(snapshot: &Snapshot, learnt: Learnt) -> sim::Settings {
    let jobs = u32::try_from(snapshot.jobs.len()).unwrap_or(u32::MAX);
    sim::Settings {
        runs: (JOBS_RUN / jobs.max(1)).clamp(RUNS.0, RUNS.1),
        seed: SEED,
        ends: learnt.ends,
        starts: learnt.starts,
        pace: learnt.pace,
    }
}

/// As it is kept and shown.
#[must_use]
pub fn shown(made: &sim::Forecast, now_ms: i64) -> Forecast {
    Forecast {
        made_at: date(now_ms),
        start: made.start.map(|start| interval(start, now_ms)),
        finish: made.finish.map(|finish| interval(finish, now_ms)),
        gpu_s: made.gpu_s,
        unforeseen: made.unforeseen,
    }
}

/// An interval with dates, as it looks at `now_ms`.
#[must_use]
pub fn interval(made: sim::Interval, now_ms: i64) -> Interval {
    let dates = (date(made.p10_ms), date(made.p50_ms), date(made.p90_ms));
    Interval::of(dates, date(now_ms))
}

/// What the forecast is scored by, once what it foretells has come.
fn raw(made: &sim::Forecast, now_ms: i64) -> Raw {
    let left_s = |at_ms: i64| at_ms.saturating_sub(now_ms) as f64 / 1000.0;
    let seconds = |interval: sim::Interval| {
        let sim::Interval {
            p10_ms,
            p50_ms,
            p90_ms,
        } = interval;
        [left_s(p10_ms), left_s(p50_ms), left_s(p90_ms)]
    };
    Raw {
        basis: made.raw.context.basis.as_str().to_owned(),
        waits: made.raw.context.waits,
        start_s: made.raw.start.map(seconds),
        finish_s: made.raw.finish.map(seconds),
    }
}

/// `None` of a basis that this release does not know.
fn end_score(outcome: &Outcome) -> Option<sim::Score> {
    let context = sim::Context {
        basis: sim::Basis::from_name(&outcome.raw.basis)?,
        waits: outcome.raw.waits,
    };
    Some(score(outcome, outcome.raw.finish_s?, context))
}

fn start_score(outcome: &Outcome) -> Option<sim::Score> {
    Some(score(outcome, outcome.raw.start_s?, sim::STARTS))
}

fn score(outcome: &Outcome, raw_s: [f64; 3], context: sim::Context) -> sim::Score {
    let made_ms = translate::unix_ms(outcome.made_at);
    let [p10_ms, p50_ms, p90_ms] = raw_s.map(|s| made_ms + (s * 1000.0) as i64);
    let interval = sim::Interval {
        p10_ms,
        p50_ms,
        p90_ms,
    };
    let came_ms = translate::unix_ms(outcome.came_at);
    sim::Score::of(interval, made_ms, context, came_ms, outcome.weight)
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
