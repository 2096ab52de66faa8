//! Users of a tenant.

use crate::error::StoreError;
use crate::int_convert::unsigned;
use muster_model::id::{TenantId, UserId};
use sqlx::PgConnection;
use time::OffsetDateTime;

/// A person or a service account of one tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub id: UserId,
    pub tenant_id: TenantId,
    /// Name, unique within the tenant.
    pub name: String,
}

/// Stores a user.
///
/// # Errors
/// [`StoreError::Statement`]; its `is_taken` is true if the tenant has a user of that name.
pub async fn create(
    conn: &mut PgConnection,
    user: &User,
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    sqlx::query!(
        "insert into app_user (id, tenant_id, name, created_at) values ($1, $2, $3, $4)",
        user.id.0,
        user.tenant_id.0,
        user.name,
        now
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns the tenant's user of that name, and creates it if there is none. Concurrent calls return
/// the same user.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn find_or_create(
    conn: &mut PgConnection,
    new: &User,
    now: OffsetDateTime,
) -> Result<UserId, StoreError> {
    sqlx::query!(
        "insert into app_user (id, tenant_id, name, created_at) values ($1, $2, $3, $4) on conflict (tenant_id, name) do nothing",
        new.id.0,
        new.tenant_id.0,
        new.name,
        now
    )
    .execute(&mut *conn)
    .await?;
    let found = sqlx::query_scalar!(
        "select id from app_user where tenant_id = $1 and name = $2",
        new.tenant_id.0,
        new.name
    )
    .fetch_one(conn)
    .await?;
    Ok(found.into())
}

/// Returns the tenant's user of that name.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn by_name(
    conn: &mut PgConnection,
    tenant: TenantId,
    name: &str,
) -> Result<Option<User>, StoreError> {
    let row = sqlx::query!(
        "select id, tenant_id, name from app_user where tenant_id = $1 and name = $2",
        tenant.0,
        name
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| User {
        id: row.id.into(),
        tenant_id: row.tenant_id.into(),
        name: row.name,
    }))
}

/// A user as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserRecord {
    pub id: UserId,
    pub name: String,
    pub created_at: OffsetDateTime,
    /// Number of tokens that are neither revoked nor expired.
    pub tokens: u64,
}

/// Returns the users of the tenant in scope, ordered by name.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn list(
    conn: &mut PgConnection,
    tenant: TenantId,
    now: OffsetDateTime,
) -> Result<Vec<UserRecord>, StoreError> {
    let rows = sqlx::query!(
        r#"select u.id, u.name, u.created_at,
                  (select count(*) from api_token k
                   where k.user_id = u.id and k.revoked_at is null and (k.expires_at is null or k.expires_at > $2)) as "tokens!"
           from app_user u where u.tenant_id = $1 order by u.name"#,
        tenant.0,
        now
    )
    .fetch_all(conn)
    .await?;
    let users = rows.into_iter().map(|row| UserRecord {
        id: row.id.into(),
        name: row.name,
        created_at: row.created_at,
        tokens: unsigned(row.tokens),
    });
    Ok(users.collect())
}

/// Returns a user, for lists of jobs.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn get(conn: &mut PgConnection, id: UserId) -> Result<Option<User>, StoreError> {
    let row = sqlx::query!(
        "select id, tenant_id, name from app_user where id = $1",
        id.0
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| User {
        id: row.id.into(),
        tenant_id: row.tenant_id.into(),
        name: row.name,
    }))
}
