//! How long programs took that have succeeded: what is known of one like them that names no number of steps.

use crate::error::StoreError;
use muster_model::id::{JobId, TenantId};
use muster_model::spec::JobSpec;
use sqlx::PgConnection;
use sqlx::types::Json;
use std::collections::BTreeMap;

/// Of each program, the newest.
const MOST: i64 = 20;
/// So many of its name are looked at, the newest: a name may have been used for many other programs since.
const LOOKED_AT: i64 = 200;

/// Seconds that programs trained, of the same tenant and name and with the same command and scale, which were started once; by open job whose
/// program names no number of steps, and empty for one that has no like.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn of_open(conn: &mut PgConnection) -> Result<BTreeMap<JobId, Vec<f64>>, StoreError> {
    let rows = sqlx::query!(
        r#"select j.id, array(
                   select o.trained_s from (
                       select trained_s, finished_at, revision, spec from job
                       where tenant_id = j.tenant_id and name = j.name and phase = 'succeeded'
                       order by finished_at desc limit $2
                   ) o
                   where o.revision = 1
                     and o.spec -> 'command' = j.spec -> 'command' and o.spec -> 'scale' = j.spec -> 'scale'
                   order by o.finished_at desc limit $1
               ) as "took!"
           from job j
           where j.phase not in ('succeeded', 'failed', 'cancelled')
             and jsonb_typeof(j.spec -> 'command') = 'object' and j.spec #> '{command,steps}' is null
           order by j.id"#,
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
