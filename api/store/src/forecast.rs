//! Forecasts. The scheduler makes them, the jobs' tenants read them, and the store compares them
//! with the actual times.

// The text of a statement names this type by its alias.
use self::SimulatedForecast as Raw;
use crate::error::StoreError;
use crate::int_convert::unsigned;
use muster_model::forecast::{Forecast, Interval};
use muster_model::id::JobId;
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use sqlx::types::Json;
use std::collections::BTreeMap;
use time::OffsetDateTime;
use uuid::Uuid;

/// A forecast of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct NewForecast {
    pub job: JobId,
    pub forecast: Forecast,
    pub raw: SimulatedForecast,
}

/// Result of the simulated runs before calibration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SimulatedForecast {
    /// Basis of the job's estimated length, by the simulator's name for it.
    pub basis: String,
    /// Whether the job had not started.
    pub waits: bool,
    /// Seconds from the forecast to the start: 10 %, 50 % and 90 % quantiles.
    pub start_s: Option<[f64; 3]>,
    /// Seconds from the forecast to the end: 10 %, 50 % and 90 % quantiles.
    pub finish_s: Option<[f64; 3]>,
}

/// A forecast of a job's end or start, with the actual time.
#[derive(Debug, Clone, PartialEq)]
pub struct ForecastOutcome {
    pub made_at: OffsetDateTime,
    pub raw: SimulatedForecast,
    pub came_at: OffsetDateTime,
    /// Share of the time in which this was the newest forecast of its job. The weights of one job
    /// sum to 1, or to less if its forecasts were shown for less than two seconds.
    pub weight: f64,
}

/// Row of both queries.
struct ForecastSqlRow {
    job_id: Uuid,
    made_at: OffsetDateTime,
    raw: Json<SimulatedForecast>,
    came_at: OffsetDateTime,
    shown_s: f64,
}

/// Maximum number of jobs whose forecasts are compared with actual times, the newest first.
const JOBS: i64 = 200;
/// Maximum number of forecasts per job. It bounds the work for jobs with forecasts of a whole day.
const OF_EACH: i64 = 20;
/// Minimum number of jobs from which the time of starts and stops is estimated.
const LEAST_JOBS: i64 = 5;
/// Time of display in seconds below which a job counts proportionally less, because few users have
/// seen its forecasts.
const SEEN_S: f64 = 2.0;

/// Share of forecasts whose interval contained the actual time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ForecastCoverage {
    pub finish: IntervalCoverage,
    pub start: IntervalCoverage,
}

/// Result for forecasts of ends, or of starts. Forecasts that are [unsure](Interval::unsure) are
/// not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct IntervalCoverage {
    pub forecasts: u64,
    pub held: u64,
    pub jobs: u64,
    /// Mean over the jobs of the share of the time in which the displayed forecast held. A job
    /// whose forecasts were shown for less than two seconds counts proportionally less. `None`
    /// without jobs.
    pub share: Option<f64>,
}

/// Stores forecasts. Forecasts of jobs that were deleted meanwhile are omitted.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn insert(conn: &mut PgConnection, new: &[NewForecast]) -> Result<(), StoreError> {
    let ids: Vec<Uuid> = new.iter().map(|one| one.job.0).collect();
    let made: Vec<OffsetDateTime> = new.iter().map(|one| one.forecast.made_at).collect();
    let raw: Vec<Json<&SimulatedForecast>> = new.iter().map(|one| Json(&one.raw)).collect();
    let gpu_s: Vec<f64> = new.iter().map(|one| one.forecast.gpu_s).collect();
    let unforeseen = new.iter().map(|one| one.forecast.unforeseen);
    let unforeseen: Vec<Option<String>> = unforeseen
        .map(|why| why.map(|why| why.as_str().to_owned()))
        .collect();
    let starts: Vec<Option<Interval>> = new.iter().map(|one| one.forecast.start).collect();
    let finishes: Vec<Option<Interval>> = new.iter().map(|one| one.forecast.finish).collect();
    sqlx::query!(
        "insert into forecast (job_id, made_at, tenant_id, widen, gpu_s,
                               start_p10, start_p50, start_p90, finish_p10, finish_p50, finish_p90, start_widen, unforeseen, raw)
         select n.job_id, n.made_at, j.tenant_id, 1, n.gpu_s, n.s10, n.s50, n.s90, n.f10, n.f50, n.f90, 1, n.unforeseen, n.raw
         from unnest($1::uuid[], $2::timestamptz[], $3::jsonb[], $4::float8[], $5::timestamptz[], $6::timestamptz[],
                     $7::timestamptz[], $8::timestamptz[], $9::timestamptz[], $10::timestamptz[], $11::text[])
              as n (job_id, made_at, raw, gpu_s, s10, s50, s90, f10, f50, f90, unforeseen)
         join job j on j.id = n.job_id and j.deleted_at is null
         on conflict do nothing",
        &ids,
        &made,
        &raw as &[Json<&SimulatedForecast>],
        &gpu_s,
        &bounds(&starts, |one| one.p10) as &[Option<OffsetDateTime>],
        &bounds(&starts, |one| one.p50) as &[Option<OffsetDateTime>],
        &bounds(&starts, |one| one.p90) as &[Option<OffsetDateTime>],
        &bounds(&finishes, |one| one.p10) as &[Option<OffsetDateTime>],
        &bounds(&finishes, |one| one.p50) as &[Option<OffsetDateTime>],
        &bounds(&finishes, |one| one.p90) as &[Option<OffsetDateTime>],
        &unforeseen as &[Option<String>]
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns one bound of each interval.
fn bounds(
    intervals: &[Option<Interval>],
    bound: fn(&Interval) -> OffsetDateTime,
) -> Vec<Option<OffsetDateTime>> {
    let intervals = intervals.iter();
    intervals
        .map(|interval| interval.as_ref().map(bound))
        .collect()
}

/// Returns forecasts of ends, for the succeeded jobs that ended last.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn outcomes(conn: &mut PgConnection) -> Result<Vec<ForecastOutcome>, StoreError> {
    let rows = sqlx::query_as!(
        ForecastSqlRow,
        r#"select j.id as "job_id!", f.made_at as "made_at!", f.raw as "raw!: Json<Raw>", f.shown_s as "shown_s!", j.finished_at as "came_at!"
           from (select id, finished_at from job where phase = 'succeeded' order by finished_at desc limit $1) j
           cross join lateral (
               select s.made_at, s.raw, s.shown_s from (
                   select made_at, raw,
                          extract(epoch from lead(made_at, 1, j.finished_at) over (order by made_at) - made_at)::float8 as shown_s
                   from forecast where job_id = j.id and made_at < j.finished_at
               ) s
               where jsonb_typeof(s.raw -> 'finish_s') = 'array'
               order by hashtext(s.made_at::text) limit $2
           ) f
           order by j.finished_at desc, j.id, f.made_at desc"#,
        JOBS,
        OF_EACH
    )
    .fetch_all(conn)
    .await?;
    Ok(weighted(rows))
}

/// Returns forecasts of starts, for the jobs that started last.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn start_outcomes(conn: &mut PgConnection) -> Result<Vec<ForecastOutcome>, StoreError> {
    let rows = sqlx::query_as!(
        ForecastSqlRow,
        r#"select j.id as "job_id!", f.made_at as "made_at!", f.raw as "raw!: Json<Raw>", f.shown_s as "shown_s!", j.started_at as "came_at!"
           from (select id, started_at from job where started_at is not null order by started_at desc limit $1) j
           cross join lateral (
               select s.made_at, s.raw, s.shown_s from (
                   select made_at, raw,
                          extract(epoch from lead(made_at, 1, j.started_at) over (order by made_at) - made_at)::float8 as shown_s
                   from forecast where job_id = j.id and made_at < j.started_at
               ) s
               where jsonb_typeof(s.raw -> 'start_s') = 'array'
               order by hashtext(s.made_at::text) limit $2
           ) f
           order by j.started_at desc, j.id, f.made_at desc"#,
        JOBS,
        OF_EACH
    )
    .fetch_all(conn)
    .await?;
    Ok(weighted(rows))
}

fn weighted(rows: Vec<ForecastSqlRow>) -> Vec<ForecastOutcome> {
    let mut whole_s: BTreeMap<Uuid, f64> = BTreeMap::new();
    for row in &rows {
        *whole_s.entry(row.job_id).or_default() += row.shown_s;
    }
    let outcomes = rows.into_iter().map(|row| ForecastOutcome {
        weight: row.shown_s / whole_s[&row.job_id].max(SEEN_S),
        made_at: row.made_at,
        raw: row.raw.0,
        came_at: row.came_at,
    });
    outcomes.collect()
}

/// Returns how often forecasts made since `since` held, over the succeeded jobs in scope.
///
/// A forecast counts for the time in which it was the newest of its job, up to the predicted event.
/// Each job counts once.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn tally(
    conn: &mut PgConnection,
    since: OffsetDateTime,
) -> Result<ForecastCoverage, StoreError> {
    let row = sqlx::query!(
        r#"with kept as materialized (
               select f.job_id, f.made_at, f.start_p10, f.start_p50, f.start_p90, f.finish_p10, f.finish_p50, f.finish_p90, j.started_at, j.finished_at,
                      lead(f.made_at, 1, j.finished_at) over (partition by f.job_id order by f.made_at) as until
               from forecast f join job j on j.id = f.job_id
               where j.phase = 'succeeded' and f.made_at >= $1 and f.made_at < j.finished_at
           ), told as materialized (
               select job_id, true as is_end, made_at, until, finish_p10 as p10, finish_p90 as p90, finished_at as came_at
               from kept where finish_p50 is not null
               union all
               select job_id, false, made_at, least(until, started_at), start_p10, start_p90, started_at
               from kept where start_p50 is not null and made_at < started_at
           ), sure as materialized (
               select job_id, is_end, greatest(extract(epoch from until - made_at)::float8, 0.001) as shown_s, came_at between p10 and p90 as holds
               from told
               where extract(epoch from p90 - made_at)::float8 + $2 <= (greatest(extract(epoch from p10 - made_at)::float8, 0) + $2) * $3
           ), each as materialized (
               select job_id, is_end, count(*) as forecasts, count(*) filter (where holds) as held,
                      coalesce(sum(shown_s) filter (where holds), 0) / sum(shown_s) as share, least(sum(shown_s) / $4, 1) as counts
               from sure group by job_id, is_end
           )
           select coalesce(sum(forecasts) filter (where is_end), 0)::bigint as "finishes!", coalesce(sum(held) filter (where is_end), 0)::bigint as "finishes_held!",
                  count(*) filter (where is_end) as "finish_jobs!", sum(share * counts) filter (where is_end) / sum(counts) filter (where is_end) as "finish_share",
                  coalesce(sum(forecasts) filter (where not is_end), 0)::bigint as "starts!", coalesce(sum(held) filter (where not is_end), 0)::bigint as "starts_held!",
                  count(*) filter (where not is_end) as "start_jobs!", sum(share * counts) filter (where not is_end) / sum(counts) filter (where not is_end) as "start_share"
           from each"#,
        since,
        Interval::OFFSET_S,
        Interval::WIDEST,
        SEEN_S
    )
    .fetch_one(conn)
    .await?;
    Ok(ForecastCoverage {
        finish: IntervalCoverage {
            forecasts: unsigned(row.finishes),
            held: unsigned(row.finishes_held),
            jobs: unsigned(row.finish_jobs),
            share: row.finish_share,
        },
        start: IntervalCoverage {
            forecasts: unsigned(row.starts),
            held: unsigned(row.starts_held),
            jobs: unsigned(row.start_jobs),
            share: row.start_share,
        },
    })
}

/// Returns the median time that jobs spent on starting and stopping, in seconds, over the jobs that
/// ended last. Returns `None` with fewer than five jobs.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn around_s(conn: &mut PgConnection) -> Result<Option<f64>, StoreError> {
    let row = sqlx::query!(
        r#"select count(*) as "jobs!", percentile_cont(0.5) within group (order by extract(epoch from finished_at - started_at)::float8 - trained_s) as around_s
           from (select started_at, finished_at, trained_s, revision from job where phase = 'succeeded' order by finished_at desc limit $1) j
           where revision = 1"#,
        JOBS
    )
    .fetch_one(conn)
    .await?;
    Ok(row.around_s.filter(|_| row.jobs >= LEAST_JOBS))
}

/// Deletes forecasts made before `before` and returns their number.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn prune(conn: &mut PgConnection, before: OffsetDateTime) -> Result<u64, StoreError> {
    let done = sqlx::query!("delete from forecast where made_at < $1", before)
        .execute(conn)
        .await?;
    Ok(done.rows_affected())
}
