//! Forecasts: made by the scheduler now and then, read by the jobs' tenants, and compared with what came.

use crate::error::StoreError;
use crate::number::unsigned;
use muster_model::forecast::{Forecast, Interval};
use muster_model::id::JobId;
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

/// A forecast of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct NewForecast {
    pub job: JobId,
    pub forecast: Forecast,
    /// By how much the interval of its end was widened, and that of its start.
    pub widen: f64,
    pub start_widen: f64,
}

/// A forecast of a job's end or start, and when that came.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    pub made_at: OffsetDateTime,
    pub interval: Interval,
    pub widen: f64,
    pub came_at: OffsetDateTime,
}

/// A row of either.
struct Came {
    made_at: OffsetDateTime,
    widen: f64,
    p10: OffsetDateTime,
    p50: OffsetDateTime,
    p90: OffsetDateTime,
    came_at: OffsetDateTime,
}

impl From<Came> for Outcome {
    fn from(row: Came) -> Self {
        let interval = Interval {
            p10: row.p10,
            p50: row.p50,
            p90: row.p90,
        };
        Self {
            made_at: row.made_at,
            interval,
            widen: row.widen,
            came_at: row.came_at,
        }
    }
}

/// Jobs whose forecasts are compared with what came, those that ended last, and forecasts of each: one that was forecast all day
/// would otherwise be the only one that counts.
const JOBS: i64 = 200;
const OF_EACH: i64 = 20;

/// How often forecasts of jobs that have succeeded held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub finishes: u64,
    pub finishes_held: u64,
    pub starts: u64,
    pub starts_held: u64,
}

/// Keeps forecasts of one instant. A job that was deleted meanwhile is left out.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn insert(conn: &mut PgConnection, new: &[NewForecast]) -> Result<(), StoreError> {
    let ids: Vec<Uuid> = new.iter().map(|one| one.job.0).collect();
    let made: Vec<OffsetDateTime> = new.iter().map(|one| one.forecast.made_at).collect();
    let widen: Vec<f64> = new.iter().map(|one| one.widen).collect();
    let start_widen: Vec<f64> = new.iter().map(|one| one.start_widen).collect();
    let gpu_s: Vec<f64> = new.iter().map(|one| one.forecast.gpu_s).collect();
    let unforeseen = new.iter().map(|one| one.forecast.unforeseen);
    let unforeseen: Vec<Option<String>> = unforeseen
        .map(|why| why.map(|why| why.as_str().to_owned()))
        .collect();
    let start = |part: fn(&Interval) -> OffsetDateTime| -> Vec<Option<OffsetDateTime>> {
        new.iter()
            .map(|one| one.forecast.start.as_ref().map(part))
            .collect()
    };
    let finish = |part: fn(&Interval) -> OffsetDateTime| -> Vec<Option<OffsetDateTime>> {
        new.iter()
            .map(|one| one.forecast.finish.as_ref().map(part))
            .collect()
    };
    sqlx::query!(
        "insert into forecast (job_id, made_at, tenant_id, widen, gpu_s,
                               start_p10, start_p50, start_p90, finish_p10, finish_p50, finish_p90, start_widen, unforeseen)
         select n.job_id, n.made_at, j.tenant_id, n.widen, n.gpu_s, n.s10, n.s50, n.s90, n.f10, n.f50, n.f90, n.start_widen, n.unforeseen
         from unnest($1::uuid[], $2::timestamptz[], $3::float8[], $4::float8[], $5::timestamptz[], $6::timestamptz[],
                     $7::timestamptz[], $8::timestamptz[], $9::timestamptz[], $10::timestamptz[], $11::float8[], $12::text[])
              as n (job_id, made_at, widen, gpu_s, s10, s50, s90, f10, f50, f90, start_widen, unforeseen)
         join job j on j.id = n.job_id and j.deleted_at is null
         on conflict do nothing",
        &ids,
        &made,
        &widen,
        &gpu_s,
        &start(|one| one.p10) as &[Option<OffsetDateTime>],
        &start(|one| one.p50) as &[Option<OffsetDateTime>],
        &start(|one| one.p90) as &[Option<OffsetDateTime>],
        &finish(|one| one.p10) as &[Option<OffsetDateTime>],
        &finish(|one| one.p50) as &[Option<OffsetDateTime>],
        &finish(|one| one.p90) as &[Option<OffsetDateTime>],
        &start_widen,
        &unforeseen as &[Option<String>]
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Forecasts of ends of jobs that have succeeded, of those that ended last.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn outcomes(conn: &mut PgConnection, limit: u32) -> Result<Vec<Outcome>, StoreError> {
    let rows = sqlx::query_as!(
        Came,
        r#"select f.made_at as "made_at!", f.widen as "widen!", f.finish_p10 as "p10!", f.finish_p50 as "p50!", f.finish_p90 as "p90!",
                  j.finished_at as "came_at!"
           from (select id, finished_at from job where phase = 'succeeded' order by finished_at desc limit $2) j
           cross join lateral (
               select made_at, widen, finish_p10, finish_p50, finish_p90 from forecast
               where job_id = j.id and finish_p50 is not null and start_widen is not null
               order by hashtext(made_at::text) limit $3
           ) f
           order by j.finished_at desc, f.made_at desc limit $1"#,
        i64::from(limit),
        JOBS,
        OF_EACH
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(Outcome::from).collect())
}

/// Forecasts of starts, of the jobs that were submitted last of those that have started.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn start_outcomes(
    conn: &mut PgConnection,
    limit: u32,
) -> Result<Vec<Outcome>, StoreError> {
    let rows = sqlx::query_as!(
        Came,
        r#"select f.made_at as "made_at!", f.start_widen as "widen!", f.start_p10 as "p10!", f.start_p50 as "p50!", f.start_p90 as "p90!",
                  j.started_at as "came_at!"
           from (select id, started_at from job where started_at is not null order by id desc limit $2) j
           cross join lateral (
               select made_at, start_widen, start_p10, start_p50, start_p90 from forecast
               where job_id = j.id and start_p50 is not null and start_widen is not null and made_at <= j.started_at
               order by hashtext(made_at::text) limit $3
           ) f
           order by j.started_at desc, f.made_at desc limit $1"#,
        i64::from(limit),
        JOBS,
        OF_EACH
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(Outcome::from).collect())
}

/// How often forecasts made since then held, of those jobs in scope that have succeeded.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn tally(conn: &mut PgConnection, since: OffsetDateTime) -> Result<Tally, StoreError> {
    let row = sqlx::query!(
        r#"select count(f.finish_p50) as "finishes!",
                  count(*) filter (where j.finished_at between f.finish_p10 and f.finish_p90) as "finishes_held!",
                  count(*) filter (where f.start_p50 is not null and j.started_at is not null) as "starts!",
                  count(*) filter (where j.started_at between f.start_p10 and f.start_p90) as "starts_held!"
           from forecast f join job j on j.id = f.job_id
           where j.phase = 'succeeded' and f.made_at >= $1"#,
        since
    )
    .fetch_one(conn)
    .await?;
    Ok(Tally {
        finishes: unsigned(row.finishes),
        finishes_held: unsigned(row.finishes_held),
        starts: unsigned(row.starts),
        starts_held: unsigned(row.starts_held),
    })
}

/// Forgets forecasts made before then; how many.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn prune(conn: &mut PgConnection, before: OffsetDateTime) -> Result<u64, StoreError> {
    let done = sqlx::query!("delete from forecast where made_at < $1", before)
        .execute(conn)
        .await?;
    Ok(done.rows_affected())
}
