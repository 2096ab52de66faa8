//! Bearer tokens. Only the SHA-256 of the secret is stored.

use crate::error::StoreError;
use muster_model::id::{TenantId, TokenId, UserId};
use muster_model::tenant::Access;
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

/// "admins" in ASCII; unique among the advisory locks of a database.
const ADMINISTRATORS: i64 = 0x6164_6d69_6e73;

/// SHA-256 of a token's secret.
pub type TokenHash = [u8; 32];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTokenRecord {
    pub id: TokenId,
    pub tenant_id: TenantId,
    pub user_id: UserId,
    /// Name that its owner gave it.
    pub name: String,
    pub access: Access,
    pub hash: TokenHash,
    pub expires_at: Option<OffsetDateTime>,
}

/// A token as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRecord {
    pub id: TokenId,
    pub user_id: UserId,
    pub user_name: String,
    pub name: String,
    pub access: Access,
    pub created_at: OffsetDateTime,
    pub expires_at: Option<OffsetDateTime>,
    pub revoked_at: Option<OffsetDateTime>,
}

/// The user and tenant that a bearer token authenticates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    pub token_id: TokenId,
    pub tenant_id: TenantId,
    pub tenant_name: String,
    pub user_id: UserId,
    pub user_name: String,
    pub access: Access,
}

/// Stores a token.
///
/// # Errors
/// [`StoreError::Statement`]; its `is_dangling` is true if the user does not belong to the tenant.
pub async fn create(
    conn: &mut PgConnection,
    token: &NewTokenRecord,
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    sqlx::query!(
        "insert into api_token (id, tenant_id, user_id, name, access, hash, created_at, expires_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8)",
        token.id.0,
        token.tenant_id.0,
        token.user_id.0,
        token.name,
        token.access.as_str(),
        &token.hash[..],
        now,
        token.expires_at
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns the principal of a valid token; `None` for others. Needs no scope: the hash identifies
/// the tenant.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn authenticate(
    conn: &mut PgConnection,
    hash: &TokenHash,
    now: OffsetDateTime,
) -> Result<Option<Principal>, StoreError> {
    let row = sqlx::query!(
        r#"select token_id as "token_id!", tenant_id as "tenant_id!", tenant_name as "tenant_name!",
                  user_id as "user_id!", user_name as "user_name!", access as "access!"
           from muster_authenticate($1, $2)"#,
        &hash[..],
        now
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| Principal {
        token_id: row.token_id.into(),
        tenant_id: row.tenant_id.into(),
        tenant_name: row.tenant_name,
        user_id: row.user_id.into(),
        user_name: row.user_name,
        access: access(&row.access),
    }))
}

/// Revokes a token. Returns `false` if it does not exist or was revoked before.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn revoke(
    conn: &mut PgConnection,
    id: TokenId,
    now: OffsetDateTime,
) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "update api_token set revoked_at = $2 where id = $1 and revoked_at is null",
        id.0,
        now
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Revokes all unrevoked tokens of a user of the tenant in scope, and returns their ids.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn revoke_of(
    conn: &mut PgConnection,
    user: UserId,
    now: OffsetDateTime,
) -> Result<Vec<TokenId>, StoreError> {
    let ids = sqlx::query_scalar!(
        "update api_token set revoked_at = $2 where user_id = $1 and revoked_at is null returning id",
        user.0,
        now
    )
    .fetch_all(conn)
    .await?;
    Ok(ids.into_iter().map(TokenId::from).collect())
}

/// Revokes all unrevoked tokens of the tenant in scope, and returns their number.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn revoke_all(
    conn: &mut PgConnection,
    tenant: TenantId,
    now: OffsetDateTime,
) -> Result<u64, StoreError> {
    let done = sqlx::query!(
        "update api_token set revoked_at = $2 where tenant_id = $1 and revoked_at is null",
        tenant.0,
        now
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

/// Whether the tenant in scope has a valid administrator token other than `beside`.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn administers(
    conn: &mut PgConnection,
    beside: Option<TokenId>,
    now: OffsetDateTime,
) -> Result<bool, StoreError> {
    let it = sqlx::query_scalar!(
        r#"select exists(
               select from api_token
               where access = 'admin' and ($1::uuid is null or id <> $1) and revoked_at is null
                 and (expires_at is null or expires_at > $2)
           ) as "it!""#,
        beside.map(Uuid::from),
        now
    )
    .fetch_one(conn)
    .await?;
    Ok(it)
}

/// Serialises revocations of administrator tokens and deletions of tenants until the transaction
/// ends. Otherwise two concurrent ones could remove each other's administrator.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn hold_administrators(conn: &mut PgConnection) -> Result<(), StoreError> {
    sqlx::query!("select pg_advisory_xact_lock($1)", ADMINISTRATORS)
        .execute(conn)
        .await?;
    Ok(())
}

/// Deletes tokens of all tenants that expired or were revoked before `ended_by`, and returns their
/// number. Records that name them are kept.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn sweep(conn: &mut PgConnection, ended_by: OffsetDateTime) -> Result<u64, StoreError> {
    let done = sqlx::query!(
        "delete from api_token where expires_at <= $1 or revoked_at <= $1",
        ended_by
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

/// Returns tokens, newest first, including revoked ones, starting behind `after`.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn list(
    conn: &mut PgConnection,
    after: Option<TokenId>,
    limit: u32,
) -> Result<Vec<TokenRecord>, StoreError> {
    let rows = sqlx::query!(
        "select k.id, k.user_id, u.name as user_name, k.name, k.access, k.created_at, k.expires_at, k.revoked_at
         from api_token k join app_user u on u.id = k.user_id
         where $1::uuid is null or k.id < $1
         order by k.id desc limit $2",
        after.map(Uuid::from),
        i64::from(limit)
    )
    .fetch_all(conn)
    .await?;
    let tokens = rows.into_iter().map(|row| TokenRecord {
        id: row.id.into(),
        user_id: row.user_id.into(),
        user_name: row.user_name,
        name: row.name,
        access: access(&row.access),
        created_at: row.created_at,
        expires_at: row.expires_at,
        revoked_at: row.revoked_at,
    });
    Ok(tokens.collect())
}

fn access(text: &str) -> Access {
    match text {
        "admin" => Access::Admin,
        "member" => Access::Member,
        other => unreachable!("a constraint keeps {other:?} out of the column"),
    }
}
