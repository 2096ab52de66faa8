//! GPU time that jobs have held. `job.held_gpu_s` has the released allocations, so retention of
//! allocations does not change it.

use crate::error::StoreError;
use crate::int_convert::unsigned32;
use muster_model::id::JobId;
use muster_model::service::{AttainedService, DEMOTED_GPU_S, HeldGpus};
use sqlx::PgConnection;
use std::collections::BTreeMap;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

/// Number of ended jobs in the history, the newest ones.
const HISTORY_JOBS: i64 = 1_000;
/// Maximum age of an ended job in the history.
const HISTORY_AGE: Duration = Duration::days(30);
/// Maximum number of values of the history.
const HISTORY_VALUES: i32 = 64;
/// Time for which a history is used.
const HISTORY_KEPT: Duration = Duration::minutes(1);

/// Adds what the tasks hold to the service of their jobs. The caller has locked the jobs, and then
/// releases the allocations of the tasks.
pub(crate) async fn add_released(
    conn: &mut PgConnection,
    tasks: &[Uuid],
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    let rows = sqlx::query!(
        r#"select j.id, j.held_gpu_s, a.allocated_at, count(*)::integer as "gpus!",
                  (count(*) filter (where t.id = any($1)))::integer as "released!"
           from (select distinct job_id from task where id = any($1)) given
           join job j on j.id = given.job_id
           join task t on t.job_id = j.id and t.released_at is null
           join allocation a on a.task_id = t.id and a.released_at is null
           group by j.id, a.allocated_at"#,
        tasks
    )
    .fetch_all(&mut *conn)
    .await?;
    let mut services: BTreeMap<Uuid, (AttainedService, f64)> = BTreeMap::new();
    for row in rows {
        let (service, released_gpu_s) = services.entry(row.id).or_default();
        service.released_gpu_s = row.held_gpu_s;
        let held = |gpus| HeldGpus {
            since: row.allocated_at,
            gpus: unsigned32(gpus),
        };
        service.held.push(held(row.gpus));
        *released_gpu_s += held(row.released).gpu_s(now);
    }
    let ids: Vec<Uuid> = services.keys().copied().collect();
    let released_gpu_s: Vec<f64> = services.values().map(|(_, released)| *released).collect();
    let demoted_at = services
        .values()
        .map(|(service, _)| service.reached(DEMOTED_GPU_S, now));
    let demoted_at: Vec<Option<OffsetDateTime>> = demoted_at.collect();
    sqlx::query!(
        "update job
         set held_gpu_s = held_gpu_s + given.gpu_s,
             demoted_at = coalesce(job.demoted_at, given.demoted_at)
         from unnest($1::uuid[], $2::float8[], $3::timestamptz[]) as given (id, gpu_s, demoted_at)
         where job.id = given.id",
        &ids,
        &released_gpu_s,
        &demoted_at as _
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns the GPUs that each job holds.
pub(crate) async fn held(
    conn: &mut PgConnection,
    jobs: &[Uuid],
) -> Result<BTreeMap<JobId, Vec<HeldGpus>>, StoreError> {
    let rows = sqlx::query!(
        r#"select t.job_id, a.allocated_at, count(*)::integer as "gpus!"
           from unnest($1::uuid[]) as given (id)
           join task t on t.job_id = given.id and t.released_at is null
           join allocation a on a.task_id = t.id and a.released_at is null
           group by t.job_id, a.allocated_at"#,
        jobs
    )
    .fetch_all(conn)
    .await?;
    let mut held: BTreeMap<JobId, Vec<HeldGpus>> = BTreeMap::new();
    for row in rows {
        held.entry(row.job_id.into()).or_default().push(HeldGpus {
            since: row.allocated_at,
            gpus: unsigned32(row.gpus),
        });
    }
    Ok(held)
}

/// Service of ended jobs, read at most once a minute.
#[derive(Debug, Default)]
pub(crate) struct ServiceHistory {
    read: Option<(OffsetDateTime, Vec<f64>)>,
}

impl ServiceHistory {
    /// Returns the GPU-seconds of the newest ended jobs that held GPUs, in ascending order. With
    /// more than 64 jobs these are the means of 64 equal parts.
    pub async fn load(
        &mut self,
        conn: &mut PgConnection,
        now: OffsetDateTime,
    ) -> Result<Vec<f64>, StoreError> {
        match &self.read {
            Some((at, gpu_s)) if now - *at < HISTORY_KEPT => Ok(gpu_s.clone()),
            _ => {
                let gpu_s = read_history(conn, now).await?;
                self.read = Some((now, gpu_s.clone()));
                Ok(gpu_s)
            }
        }
    }
}

async fn read_history(
    conn: &mut PgConnection,
    now: OffsetDateTime,
) -> Result<Vec<f64>, StoreError> {
    let rows = sqlx::query_scalar!(
        r#"select avg(held_gpu_s) as "gpu_s!"
           from (
               select held_gpu_s, ntile($3) over (order by held_gpu_s) as part
               from (
                   select held_gpu_s from job
                   where finished_at > $1 and finished_at is not null and deleted_at is null
                   order by finished_at desc limit $2) newest
               where held_gpu_s > 0) parts
           group by part order by part"#,
        now - HISTORY_AGE,
        HISTORY_JOBS,
        HISTORY_VALUES
    )
    .fetch_all(conn)
    .await?;
    Ok(rows)
}
