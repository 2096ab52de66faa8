//! Scope of a transaction of the API server: the tenant for which it acts. Row level security reads
//! it; without a scope no row of a tenant is visible.

use crate::error::StoreError;
use muster_model::id::TenantId;
use sqlx::PgConnection;

/// Sets the tenant: until the end of the transaction only rows of `tenant` are visible.
/// `pool::begin_for` does the same without a round trip of its own.
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

/// Allows administration until the end of the transaction: listing, creating and changing tenants,
/// creating users of any tenant, and draining nodes. Jobs and tokens remain those of the tenant in
/// scope. The caller has checked that the bearer is an administrator.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn admin(conn: &mut PgConnection) -> Result<(), StoreError> {
    sqlx::query_scalar!("select set_config('muster.admin', 'on', true)")
        .fetch_one(conn)
        .await?;
    Ok(())
}
