//! Conversion of tokens to response types, and creation of secrets and users.

use crate::auth::tokens::hash;
use crate::clock;
use crate::problem::ApiError;
use muster_model::id::{TenantId, UserId};
use muster_model::view::TokenView;
use muster_store::PgConnection;
use muster_store::token::{TokenHash, TokenRecord};
use muster_store::user::{self, User};
use std::fmt::Write as _;
use time::OffsetDateTime;

/// `tenant` is the name of its user's tenant.
pub fn token(token: TokenRecord, tenant: &str) -> TokenView {
    TokenView {
        id: token.id,
        name: token.name,
        user: token.user_name,
        tenant: tenant.to_owned(),
        access: token.access,
        created_at: token.created_at,
        expires_at: token.expires_at,
        revoked_at: token.revoked_at,
    }
}

/// Returns a new secret and its hash. The prefix lets scanners of leaked secrets recognise it.
///
/// # Errors
/// If the operating system has no randomness.
pub fn secret() -> Result<(String, TokenHash), ApiError> {
    let bytes = clock::secret().map_err(|error| ApiError::internal(&error))?;
    let mut secret = String::from("muster_");
    for byte in bytes {
        let _ = write!(secret, "{byte:02x}");
    }
    let hash = hash(&secret);
    Ok((secret, hash))
}

/// Returns the user of this name; creates it if necessary.
pub async fn user_id(
    conn: &mut PgConnection,
    tenant_id: TenantId,
    name: &str,
    now: OffsetDateTime,
) -> Result<UserId, ApiError> {
    if let Some(found) = user::by_name(conn, tenant_id, name).await? {
        return Ok(found.id);
    }
    let new = User {
        id: clock::new_id().into(),
        tenant_id,
        name: name.to_owned(),
    };
    Ok(user::find_or_create(conn, &new, now).await?)
}
