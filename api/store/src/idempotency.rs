//! Stored answers by `Idempotency-Key`. Claim, execution and storing are one transaction. A second
//! request with the same key waits for the commit of the first and receives its answer.

use crate::error::StoreError;
use muster_model::id::TenantId;
use sqlx::PgConnection;
use time::OffsetDateTime;

/// Result of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// New request. Carry it out, then `store` the answer in the same transaction.
    New,
    /// Repeated request: send this answer again.
    Replay { status: u16, body: String },
    /// The key was used for a different request.
    Mismatch,
}

/// Claims a key for a request.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn claim(
    conn: &mut PgConnection,
    tenant: TenantId,
    key: &str,
    request_hash: &[u8; 32],
    now: OffsetDateTime,
    expires_at: OffsetDateTime,
) -> Result<Claim, StoreError> {
    // A row that has expired or has no answer is taken over. The row lock serialises concurrent
    // requests.
    let taken = sqlx::query!(
        "insert into idempotency (tenant_id, key, request_hash, expires_at) values ($1, $2, $3, $5)
         on conflict (tenant_id, key) do update
            set request_hash = excluded.request_hash, expires_at = excluded.expires_at, status = null, body = null
            where idempotency.expires_at <= $4 or idempotency.status is null",
        tenant.0,
        key,
        &request_hash[..],
        now,
        expires_at
    )
    .execute(&mut *conn)
    .await?;
    if taken.rows_affected() == 1 {
        return Ok(Claim::New);
    }
    let row = sqlx::query!(
        r#"select request_hash, status as "status!", body as "body!" from idempotency where tenant_id = $1 and key = $2"#,
        tenant.0,
        key
    )
    .fetch_one(conn)
    .await?;
    if row.request_hash != request_hash {
        return Ok(Claim::Mismatch);
    }
    Ok(Claim::Replay {
        status: u16::try_from(row.status).expect("an HTTP status"),
        body: row.body,
    })
}

/// Stores the answer of a claimed request.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn store(
    conn: &mut PgConnection,
    tenant: TenantId,
    key: &str,
    status: u16,
    body: &str,
) -> Result<(), StoreError> {
    sqlx::query!(
        "update idempotency set status = $3, body = $4 where tenant_id = $1 and key = $2",
        tenant.0,
        key,
        i32::from(status),
        body
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Deletes the expired answers of all visible tenants and returns their number.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn sweep(conn: &mut PgConnection, now: OffsetDateTime) -> Result<u64, StoreError> {
    let done = sqlx::query!("delete from idempotency where expires_at <= $1", now)
        .execute(conn)
        .await?;
    Ok(done.rows_affected())
}
