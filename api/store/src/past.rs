//! How long programs took that have succeeded: what is known of one like them that names no number of steps.

use crate::error::StoreError;
use muster_model::id::{JobId, TenantId};
use muster_model::spec::JobSpec;
use sqlx::PgConnection;
use sqlx::types::Json;
use std::collections::BTreeMap;
use uuid::Uuid;

/// Of each program, the newest.
const MOST: i64 = 20;
/// So many of its name are looked at, the newest: a name may have been used for many other programs since.
const LOOKED_AT: i64 = 200;

/// Seconds that programs trained, of the same tenant and name and with the same command and scale, which were started once; by job of
/// these whose program names no number of steps, and empty for one that has no like.
///
/// The newest jobs of each name are read once, however many of `jobs` have the name.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn of_jobs(
    conn: &mut PgConnection,
    jobs: &[JobId],
) -> Result<BTreeMap<JobId, Vec<f64>>, StoreError> {
    let ids: Vec<Uuid> = jobs.iter().map(|job| job.0).collect();
    let rows = sqlx::query!(
        r#"with program as materialized (
               select j.id, j.tenant_id, j.name, md5((j.spec -> 'command')::text || (j.spec -> 'scale')::text) as same
               from unnest($1::uuid[]) as given (id)
               join job j on j.id = given.id
               where jsonb_typeof(j.spec -> 'command') = 'object' and j.spec #> '{command,steps}' is null
           ), past as materialized (
               select n.tenant_id, n.name, o.trained_s, o.finished_at, o.same
               from (select distinct tenant_id, name from program) n
               cross join lateral (
                   select trained_s, finished_at, revision, md5((spec -> 'command')::text || (spec -> 'scale')::text) as same from job
                   where tenant_id = n.tenant_id and name = n.name and phase = 'succeeded'
                   order by finished_at desc limit $3
               ) o
               where o.revision = 1
           ), ranked as materialized (
               select *, row_number() over (partition by tenant_id, name, same order by finished_at desc) as place from past
           ), newest as materialized (
               select tenant_id, name, same, array_agg(trained_s order by place) as took from ranked where place <= $2 group by tenant_id, name, same
           )
           select p.id as "id!", coalesce(n.took, '{}') as "took!"
           from program p left join newest n on n.tenant_id = p.tenant_id and n.name = p.name and n.same = p.same"#,
        &ids,
        MOST,
        LOOKED_AT
    )
    .fetch_all(conn)
    .await?;
    let jobs = rows.into_iter().map(|row| (row.id.into(), row.took));
    Ok(jobs.collect())
}

/// The same for a document that nobody has submitted.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn of_spec(
    conn: &mut PgConnection,
    tenant: TenantId,
    spec: &JobSpec,
) -> Result<Vec<f64>, StoreError> {
    let names_none = |command: &muster_model::spec::Command| command.steps.is_none();
    if !spec.command.as_ref().is_some_and(names_none) {
        return Ok(Vec::new());
    }
    let took = sqlx::query_scalar!(
        r#"select o.trained_s from (
               select trained_s, finished_at, revision, spec from job
               where tenant_id = $1 and name = $2 and phase = 'succeeded'
               order by finished_at desc limit $5
           ) o
           where o.revision = 1
             and o.spec -> 'command' = $3::jsonb -> 'command' and o.spec -> 'scale' = $3::jsonb -> 'scale'
           order by o.finished_at desc limit $4"#,
        tenant.0,
        spec.name,
        Json(spec) as _,
        MOST,
        LOOKED_AT
    )
    .fetch_all(conn)
    .await?;
    Ok(took)
}
