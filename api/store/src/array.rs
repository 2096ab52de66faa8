//! Arrays of jobs of which a limited number run at the same time (`array` of the document).
//!
//! Further jobs are held as those of [`crate::after`]: queued, with a `not_before` in the year
//! 9999. The commit that ends a job of the array lets the next one start, in the order of their
//! ids.

use crate::after::after_jobs;
use crate::error::StoreError;
use crate::job::not_considered;
use crate::notify::{self, NotifyChannel};
use muster_model::id::{JobId, TenantId};
use muster_model::job::JobPhase;
use muster_model::spec::ArrayMember;
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

/// Whether a new job of the array is held. Until the end of the transaction no other one enters or
/// leaves the array.
pub(crate) async fn is_held(
    conn: &mut PgConnection,
    tenant: TenantId,
    array: &ArrayMember,
) -> Result<bool, StoreError> {
    lock(conn, tenant.0, &array.name).await?;
    // A held job is ahead of a new one, also if the limits differ.
    let held = sqlx::query_scalar!(
        r#"select count(*) filter (where not held) >= $3 or count(*) filter (where held) > 0 as "held!"
           from job_array where tenant_id = $1 and name = $2"#,
        tenant.0,
        array.name,
        i64::from(array.parallel)
    )
    .fetch_one(conn)
    .await?;
    Ok(held)
}

/// Enters a job that was inserted into its array.
pub(crate) async fn insert(
    conn: &mut PgConnection,
    (tenant, job): (TenantId, JobId),
    array: &ArrayMember,
    held: bool,
) -> Result<(), StoreError> {
    sqlx::query!(
        "insert into job_array (job_id, tenant_id, name, parallel, held) values ($1, $2, $3, $4, $5)",
        job.0,
        tenant.0,
        array.name,
        i32::try_from(array.parallel).expect("at most 10,000"),
        held
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Lets the next jobs of the arrays of these jobs start.
pub(crate) async fn settle(
    conn: &mut PgConnection,
    ended: &[(JobId, JobPhase)],
) -> Result<(), StoreError> {
    if ended.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = ended.iter().map(|(id, _)| id.0).collect();
    let arrays = sqlx::query!(
        r#"with gone as (delete from job_array where job_id = any($1) returning tenant_id, name)
           select distinct tenant_id as "tenant_id!", name as "name!" from gone order by 1, 2"#,
        &ids
    )
    .fetch_all(&mut *conn)
    .await?;
    for array in &arrays {
        lock(conn, array.tenant_id, &array.name).await?;
        release(conn, array.tenant_id, &array.name).await?;
    }
    if !arrays.is_empty() {
        notify::send(conn, &[NotifyChannel::Rounds]).await?;
    }
    Ok(())
}

/// Lets held jobs of an array start, as far as its limit allows.
async fn release(conn: &mut PgConnection, tenant: Uuid, name: &str) -> Result<(), StoreError> {
    let freed = sqlx::query_scalar!(
        "update job_array set held = false where job_id in (
             select job_id from job_array where tenant_id = $1 and name = $2 and held order by job_id limit greatest(0, (
                 select coalesce((select parallel from job_array where tenant_id = $1 and name = $2 and held order by job_id limit 1), 0)
                        - count(*) filter (where not held)
                 from job_array where tenant_id = $1 and name = $2
             ))
         ) returning job_id",
        tenant,
        name
    )
    .fetch_all(&mut *conn)
    .await?;
    if freed.is_empty() {
        return Ok(());
    }
    // A job with `after` continues to wait. It already counts against the limit of the array.
    sqlx::query!(
        "update job set not_before = null, waiting = case when phase = 'queued' then $2 else waiting end
         where id = any($1) and phase in ('queued', 'paused') and not_before = $3
           and not exists (select from job_after a where a.job_id = job.id)",
        &freed,
        Json(not_considered()) as _,
        after_jobs()
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Serialises changes of an array.
async fn lock(conn: &mut PgConnection, tenant: Uuid, name: &str) -> Result<(), StoreError> {
    sqlx::query!(
        r#"select pg_advisory_xact_lock(hashtextextended($1::text, 114))::text as "held""#,
        format!("{tenant} {name}")
    )
    .fetch_one(conn)
    .await?;
    Ok(())
}
