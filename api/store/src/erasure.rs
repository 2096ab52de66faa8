//! Erasure of the files of deleted jobs. A job whose files are to be erased is one that was deleted and has no `erased_at`: the order
//! survives every restart, and is given again until a node has reported that the files are gone.

use crate::error::StoreError;
use muster_model::id::{JobId, TenantId};
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

/// A job whose files are to be erased.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending {
    pub tenant: TenantId,
    pub job: JobId,
}

/// Jobs that were deleted before `before` and whose files nothing needs, the earliest deleted first, without those in `except`; `most` of
/// them. A job waits while a task of it is there, while an open job begins from it, and while its study is not deleted. Jobs that never
/// started have no files: they count as erased from now on.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn pending(
    conn: &mut PgConnection,
    (before, now): (OffsetDateTime, OffsetDateTime),
    except: &[JobId],
    most: u32,
) -> Result<Vec<Pending>, StoreError> {
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
    let pending = rows.into_iter().map(|row| Pending {
        tenant: row.tenant_id.into(),
        job: row.id.into(),
    });
    Ok(pending.collect())
}

/// The files of a deleted job are gone. `false` when it is not deleted, or they were gone before.
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
