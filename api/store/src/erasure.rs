//! Erasure of the files of deleted jobs. A deleted job without `erased_at` still has files to
//! erase. So an order survives every restart, and is repeated until a node reports that the files
//! are removed.

use crate::error::StoreError;
use muster_model::id::{JobId, TenantId};
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

/// A job whose files are to be erased.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PendingErasure {
    pub tenant: TenantId,
    pub job: JobId,
}

/// Returns at most `most` jobs that were deleted before `before` and whose files no job or study
/// needs. Jobs of `except` are omitted; the earliest deleted come first.
///
/// A job is held back while it has an unreleased task, while an open job begins from its
/// checkpoint, and while its study is not deleted. Jobs that never started have no files: this call
/// marks them as erased at `now`.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn pending(
    conn: &mut PgConnection,
    (before, now): (OffsetDateTime, OffsetDateTime),
    except: &[JobId],
    most: u32,
) -> Result<Vec<PendingErasure>, StoreError> {
    sqlx::query!(
        "update job set erased_at = $2 where deleted_at < $1 and erased_at is null and revision = 0",
        before,
        now
    )
    .execute(&mut *conn)
    .await?;
    let except: Vec<Uuid> = except.iter().map(|job| job.0).collect();
    let rows = sqlx::query!(
        "select id, tenant_id from job j
         where deleted_at < $1 and erased_at is null and id <> all($2)
           and not exists (select from task t where t.job_id = j.id and t.released_at is null)
           and not muster_is_needed(j.id)
         order by deleted_at, id limit $3",
        before,
        &except,
        i64::from(most)
    )
    .fetch_all(conn)
    .await?;
    let pending = rows.into_iter().map(|row| PendingErasure {
        tenant: row.tenant_id.into(),
        job: row.id.into(),
    });
    Ok(pending.collect())
}

/// Marks the files of a deleted job as erased. Returns `false` if the job is not deleted, or was
/// marked before.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn done(
    conn: &mut PgConnection,
    job: JobId,
    now: OffsetDateTime,
) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "update job set erased_at = $2 where id = $1 and deleted_at is not null and erased_at is null",
        job.0,
        now
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}
