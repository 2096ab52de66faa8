//! Duration history: how long earlier jobs with the same document took. It is the estimate for a
//! job before the job reports itself.

use crate::error::StoreError;
use crate::int_convert::unsigned32;
use muster_model::id::{JobId, TenantId};
use muster_model::spec::JobSpec;
use sqlx::PgConnection;
use sqlx::types::Json;
use std::collections::BTreeMap;
use uuid::Uuid;

/// Maximum number of earlier jobs per document, the newest first.
const MOST: i64 = 20;
/// Maximum number of earlier jobs that are compared, the newest of that name. The other jobs of the
/// name may have different documents.
const LOOKED_AT: i64 = 200;

/// A job that has succeeded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct JobDuration {
    /// Time that it trained, in seconds.
    pub took_s: f64,
    /// Its last step; `None` for a command that reports no steps.
    pub steps: Option<f64>,
    /// Workers and PS shards with which it trained longest; `None` if no speed was measured.
    pub size: Option<(u32, u32)>,
}

/// Row of both queries.
struct DurationSqlRow {
    took_s: f64,
    steps: Option<f64>,
    workers: Option<i32>,
    ps_shards: Option<i32>,
}

impl From<DurationSqlRow> for JobDuration {
    fn from(row: DurationSqlRow) -> Self {
        let size = row.workers.zip(row.ps_shards);
        Self {
            took_s: row.took_s,
            steps: row.steps,
            size: size.map(|(workers, ps_shards)| (unsigned32(workers), unsigned32(ps_shards))),
        }
    }
}

/// Returns the earlier succeeded jobs of each job, newest first: jobs of the same tenant, name and
/// content (SQL function `job_content`). Commands count only if they were started once, because a
/// second start may have repeated steps. A job that begins from another job's checkpoint has no
/// earlier jobs.
///
/// The newest jobs of each name are read once, even if several `jobs` have the name.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn of_jobs(
    conn: &mut PgConnection,
    jobs: &[JobId],
) -> Result<BTreeMap<JobId, Vec<JobDuration>>, StoreError> {
    let ids: Vec<Uuid> = jobs.iter().map(|job| job.0).collect();
    let rows = sqlx::query!(
        r#"with wanted as materialized (
               select j.id, j.tenant_id, j.name, job_content(j.spec) as same
               from unnest($1::uuid[]) as given (id)
               join job j on j.id = given.id
               where jsonb_typeof(j.spec -> 'from') is distinct from 'object'
           ), past as materialized (
               select n.tenant_id, n.name, o.*
               from (select distinct tenant_id, name from wanted) n
               cross join lateral (
                   select id, trained_s, finished_at, revision, job_content(spec) as same, jsonb_typeof(spec -> 'command') = 'object' as is_command,
                          jsonb_typeof(spec -> 'from') = 'object' as has_origin,
                          coalesce(finished ->> 'step', latest ->> 'step')::float8 as steps
                   from job
                   where tenant_id = n.tenant_id and name = n.name and phase = 'succeeded'
                   order by finished_at desc limit $3
               ) o
               where (o.revision = 1 or o.is_command is not true) and o.has_origin is not true
           ), ranked as materialized (
               select *, row_number() over (partition by tenant_id, name, same order by finished_at desc) as place from past
           )
           select w.id as "id!", p.trained_s as "took_s!", p.steps, s.workers as "workers?", s.ps_shards as "ps_shards?"
           from wanted w
           join ranked p on p.tenant_id = w.tenant_id and p.name = w.name and p.same = w.same and p.place <= $2
           left join lateral (select workers, ps_shards from speed where job_id = p.id order by samples desc limit 1) s on true
           order by w.id, p.place"#,
        &ids,
        MOST,
        LOOKED_AT
    )
    .fetch_all(conn)
    .await?;
    let mut earlier: BTreeMap<JobId, Vec<JobDuration>> = BTreeMap::new();
    for row in rows {
        let found = DurationSqlRow {
            took_s: row.took_s,
            steps: row.steps,
            workers: row.workers,
            ps_shards: row.ps_shards,
        };
        earlier.entry(row.id.into()).or_default().push(found.into());
    }
    Ok(earlier)
}

/// Returns the same for a document that was not submitted.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn of_spec(
    conn: &mut PgConnection,
    tenant: TenantId,
    spec: &JobSpec,
) -> Result<Vec<JobDuration>, StoreError> {
    if spec.from.is_some() {
        return Ok(Vec::new());
    }
    let rows = sqlx::query_as!(
        DurationSqlRow,
        r#"select o.trained_s as "took_s!", o.steps, s.workers as "workers?", s.ps_shards as "ps_shards?"
           from (
               select id, trained_s, finished_at, revision, spec, coalesce(finished ->> 'step', latest ->> 'step')::float8 as steps from job
               where tenant_id = $1 and name = $2 and phase = 'succeeded'
               order by finished_at desc limit $5
           ) o
           left join lateral (select workers, ps_shards from speed where job_id = o.id order by samples desc limit 1) s on true
           where (o.revision = 1 or jsonb_typeof(o.spec -> 'command') is distinct from 'object')
             and jsonb_typeof(o.spec -> 'from') is distinct from 'object' and job_content(o.spec) = job_content($3::jsonb)
           order by o.finished_at desc limit $4"#,
        tenant.0,
        spec.name,
        Json(spec) as _,
        MOST,
        LOOKED_AT
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(JobDuration::from).collect())
}
