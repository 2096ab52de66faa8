//! That somebody can still administer. Without an administrator's token nobody could make one any more, nor manage nodes and tenants.

use muster_model::id::{TenantId, TokenId};
use muster_store::{PgConnection, StoreError, scope, tenant, token};
use time::{Duration, OffsetDateTime};

/// An administrator's token that ends sooner may be gone before anybody has noticed that it was the last.
pub const LASTING: Duration = Duration::days(1);

/// What is about to be refused for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    Token(TokenId),
    /// What is gone already in the transaction.
    Nothing,
    /// With all of its tokens.
    Tenant(TenantId),
}

/// Whether beside what is taken there is a token with which an administrator may still ask at `until`. Nobody else takes any until the end of
/// the transaction, which is left in the scope of some tenant.
///
/// # Errors
/// When the store does not answer.
pub async fn stay(
    conn: &mut PgConnection,
    taken: Taken,
    until: OffsetDateTime,
) -> Result<bool, StoreError> {
    token::hold_administrators(conn).await?;
    scope::admin(conn).await?;
    for tenant in tenant::list(conn).await? {
        let beside = match taken {
            Taken::Tenant(id) if id == tenant.id => continue,
            Taken::Tenant(_) | Taken::Nothing => None,
            Taken::Token(id) => Some(id),
        };
        scope::tenant(conn, tenant.id).await?;
        if token::administers(conn, beside, until).await? {
            return Ok(true);
        }
    }
    Ok(false)
}
