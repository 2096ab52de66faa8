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
    /// By how much its intervals were widened.
    pub widen: f64,
}

/// A forecast of a job's end, and when it came.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    pub made_at: OffsetDateTime,
    pub finish: Interval,
    pub widen: f64,
    pub finished_at: OffsetDateTime,
}

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
    let gpu_s: Vec<f64> = new.iter().map(|one| one.forecast.gpu_s).collect();
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
                               start_p10, start_p50, start_p90, finish_p10, finish_p50, finish_p90)
         select n.job_id, n.made_at, j.tenant_id, n.widen, n.gpu_s, n.s10, n.s50, n.s90, n.f10, n.f50, n.f90
         from unnest($1::uuid[], $2::timestamptz[], $3::float8[], $4::float8[], $5::timestamptz[], $6::timestamptz[],
                     $7::timestamptz[], $8::timestamptz[], $9::timestamptz[], $10::timestamptz[])
              as n (job_id, made_at, widen, gpu_s, s10, s50, s90, f10, f50, f90)
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
        &finish(|one| one.p90) as &[Option<OffsetDateTime>]
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Of forecasts of jobs that have succeeded, those of the jobs that ended last.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn outcomes(conn: &mut PgConnection, limit: u32) -> Result<Vec<Outcome>, StoreError> {
    let rows = sqlx::query!(
        r#"select f.made_at, f.widen, f.finish_p10 as "p10!", f.finish_p50 as "p50!", f.finish_p90 as "p90!",
                  j.finished_at as "finished_at!"
           from forecast f join job j on j.id = f.job_id
           where j.phase = 'succeeded' and f.finish_p50 is not null
           order by j.finished_at desc, f.made_at desc limit $1"#,
        i64::from(limit)
    )
    .fetch_all(conn)
    .await?;
    let outcomes = rows.into_iter().map(|row| Outcome {
        made_at: row.made_at,
        finish: Interval {
            p10: row.p10,
            p50: row.p50,
            p90: row.p90,
        },
        widen: row.widen,
        finished_at: row.finished_at,
    });
    Ok(outcomes.collect())
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
