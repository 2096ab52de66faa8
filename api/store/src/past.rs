//! How long programs took that have succeeded: what is known of one like them that names no number of steps.

use crate::error::StoreError;
use muster_model::id::{JobId, TenantId};
use muster_model::spec::JobSpec;
use sqlx::PgConnection;
use sqlx::types::Json;
use std::collections::BTreeMap;

/// Of each program, the newest.
const MOST: i64 = 20;

/// Seconds that programs trained, of the same tenant and name and with the same command and scale, which were started once; by open job whose
/// program names no number of steps, and empty for one that has no like.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn of_open(conn: &mut PgConnection) -> Result<BTreeMap<JobId, Vec<f64>>, StoreError> {
    let rows = sqlx::query!(
        r#"select j.id, array(
                   select o.trained_s from job o
                   where o.tenant_id = j.tenant_id and o.name = j.name and o.phase = 'succeeded' and o.revision = 1
                     and o.spec -> 'command' = j.spec -> 'command' and o.spec -> 'scale' = j.spec -> 'scale'
                   order by o.finished_at desc limit $1
               ) as "took!"
           from job j
           where j.phase not in ('succeeded', 'failed', 'cancelled')
             and jsonb_typeof(j.spec -> 'command') = 'object' and j.spec #> '{command,steps}' is null
           order by j.id"#,
        MOST
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
        r#"select trained_s from job
           where tenant_id = $1 and name = $2 and phase = 'succeeded' and revision = 1
             and spec -> 'command' = $3::jsonb -> 'command' and spec -> 'scale' = $3::jsonb -> 'scale'
           order by finished_at desc limit $4"#,
        tenant.0,
        spec.name,
        Json(spec) as _,
        MOST
    )
    .fetch_all(conn)
    .await?;
    Ok(took)
}
