//! Checks that an administrator's token remains. Without one, no further token can be created, and
//! no node or tenant managed.

use muster_model::id::{TenantId, TokenId};
use muster_store::{PgConnection, StoreError, tenant, tenant_scope, token};
use time::{Duration, OffsetDateTime};

/// Shortest remaining lifetime of an administrator's token that counts as lasting. A shorter one
/// may expire before it is noticed that it was the last.
pub const LASTING: Duration = Duration::days(1);

/// Tokens that are about to be refused for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenRevocation {
    Token(TokenId),
    /// Tokens that the transaction has already revoked.
    Nothing,
    /// A tenant with all of its tokens.
    Tenant(TenantId),
}

/// Whether a token of an administrator remains valid at `until` after `revocation`. Takes a lock,
/// so that no other transaction removes one before the end of this one. Leaves the transaction in
/// the scope of some tenant.
///
/// # Errors
/// If the store does not answer.
pub async fn stay(
    conn: &mut PgConnection,
    revocation: TokenRevocation,
    until: OffsetDateTime,
) -> Result<bool, StoreError> {
    token::hold_administrators(conn).await?;
    tenant_scope::admin(conn).await?;
    for tenant in tenant::list(conn).await? {
        let beside = match revocation {
            TokenRevocation::Tenant(id) if id == tenant.id => continue,
            TokenRevocation::Tenant(_) | TokenRevocation::Nothing => None,
            TokenRevocation::Token(id) => Some(id),
        };
        tenant_scope::tenant(conn, tenant.id).await?;
        if token::administers(conn, beside, until).await? {
            return Ok(true);
        }
    }
    Ok(false)
}
