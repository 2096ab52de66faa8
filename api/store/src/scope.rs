//! On whose behalf a transaction of the api acts. Row level security reads it; without it no tenant's row is seen.

use crate::error::StoreError;
use muster_model::id::TenantId;
use sqlx::PgConnection;

/// Until the end of the transaction, only rows of `tenant` exist. See also `pool::begin_for`, which costs no round trip.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn tenant(conn: &mut PgConnection, tenant: TenantId) -> Result<(), StoreError> {
    sqlx::query_scalar!(
        "select set_config('muster.tenant', $1, true)",
        tenant.0.to_string()
    )
    .fetch_one(conn)
    .await?;
    Ok(())
}

/// Until the end of the transaction, tenants may be listed, created and changed, users of any tenant created and nodes drained.
/// Jobs and tokens still are only those of the tenant in scope. The caller has checked that the bearer is an administrator.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn admin(conn: &mut PgConnection) -> Result<(), StoreError> {
    sqlx::query_scalar!("select set_config('muster.admin', 'on', true)")
        .fetch_one(conn)
        .await?;
    Ok(())
}
