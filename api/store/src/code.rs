//! Code archives of the tenant in scope. The API server keeps their files in the checkpoint store.
//!
//! A row is inserted when its file is complete, and a file is removed after its row. Both happen
//! under [`hold`], so a row always has its file.

use crate::error::StoreError;
use crate::int_convert::{signed, unsigned};
use crate::limit::{self, TenantLimitExceeded};
use muster_model::id::TenantId;
use sqlx::PgConnection;
use time::{Duration, OffsetDateTime};

/// Precision of the time of the last use, so that submissions rarely write it.
const USE_PRECISION: Duration = Duration::HOUR;

/// A stored archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeArchive {
    pub sha256: String,
    pub bytes: u64,
    pub created_at: OffsetDateTime,
}

/// Prevents other transactions from adding or removing archives of the tenant until this one ends.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn hold(conn: &mut PgConnection, tenant: TenantId) -> Result<(), StoreError> {
    sqlx::query!(
        r#"select pg_advisory_xact_lock(hashtextextended($1, 97))::text as "held""#,
        tenant.to_string()
    )
    .fetch_one(conn)
    .await?;
    Ok(())
}

/// Returns an archive.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn get(conn: &mut PgConnection, sha256: &str) -> Result<Option<CodeArchive>, StoreError> {
    let row = sqlx::query!(
        "select sha256, bytes, created_at from code_archive where sha256 = $1",
        sha256
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| CodeArchive {
        sha256: row.sha256,
        bytes: unsigned(row.bytes),
        created_at: row.created_at,
    }))
}

/// Checks that an archive fits into the limit of the tenant.
///
/// # Errors
/// [`StoreError::Exceeded`] if the archives of the tenant would exceed `code_bytes`.
pub async fn must_fit(
    conn: &mut PgConnection,
    tenant: TenantId,
    archive: &CodeArchive,
) -> Result<(), StoreError> {
    let most = limit::of(conn, tenant).await?.code_bytes;
    let used = sqlx::query_scalar!(
        r#"select coalesce(sum(bytes), 0)::bigint as "used!" from code_archive where sha256 <> $1"#,
        archive.sha256
    )
    .fetch_one(conn)
    .await?;
    let used = unsigned(used);
    if used + archive.bytes <= most {
        return Ok(());
    }
    Err(StoreError::Exceeded(TenantLimitExceeded {
        limit: "code_bytes".to_owned(),
        most,
        used,
        asked: archive.bytes,
    }))
}

/// Inserts an archive whose file is complete, or records that it was uploaded again. The caller
/// holds the archives.
///
/// # Errors
/// As [`must_fit`].
pub async fn add(
    conn: &mut PgConnection,
    tenant: TenantId,
    archive: &CodeArchive,
) -> Result<(), StoreError> {
    must_fit(conn, tenant, archive).await?;
    sqlx::query!(
        "insert into code_archive (tenant_id, sha256, bytes, created_at, used_at) values ($1, $2, $3, $4, $4)
         on conflict (tenant_id, sha256) do update set used_at = excluded.used_at",
        tenant.0,
        archive.sha256,
        signed(archive.bytes),
        archive.created_at
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Records the use of an archive by a new document, which keeps it. Returns `false` if the tenant
/// has no such archive.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn record_use(
    conn: &mut PgConnection,
    sha256: &str,
    now: OffsetDateTime,
) -> Result<bool, StoreError> {
    let used_at = sqlx::query_scalar!("select used_at from code_archive where sha256 = $1", sha256)
        .fetch_optional(&mut *conn)
        .await?;
    let Some(used_at) = used_at else {
        return Ok(false);
    };
    if used_at > now - USE_PRECISION {
        return Ok(true);
    }
    // Waits for a removal that is under way, and then finds no row.
    let done = sqlx::query!(
        "update code_archive set used_at = $2 where sha256 = $1",
        sha256,
        now
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Removes the rows of archives that were last used before `before` and that no job, study,
/// schedule or template of the tenant names.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn remove_unused(
    conn: &mut PgConnection,
    before: OffsetDateTime,
) -> Result<u64, StoreError> {
    let done = sqlx::query!(
        "delete from code_archive archive
         where used_at < $1
           and not exists (
               select from job
               where tenant_id = archive.tenant_id and deleted_at is null
                 and spec #>> '{command,code,archive}' is not null
                 and spec #>> '{command,code,archive}' = archive.sha256
           )
           and not exists (
               select from study
               where tenant_id = archive.tenant_id and deleted_at is null
                 and document::jsonb #>> '{job,command,code,archive}' = archive.sha256
           )
           and not exists (
               select from schedule
               where tenant_id = archive.tenant_id and document #>> '{command,code,archive}' = archive.sha256
           )
           and not exists (
               select from template
               where tenant_id = archive.tenant_id and document #>> '{job,command,code,archive}' = archive.sha256
           )",
        before
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

/// Returns the names of all archives.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn names(conn: &mut PgConnection) -> Result<Vec<String>, StoreError> {
    Ok(
        sqlx::query_scalar!("select sha256 from code_archive order by sha256")
            .fetch_all(conn)
            .await?,
    )
}
