//! `DELETE /tokens/{id}`.

use super::administrators::{self, LASTING, TokenRevocation};
use crate::auth::Caller;
use crate::clock;
use crate::problem::{ApiError, ProblemKind};
use crate::query::{Params, PathParam};
use crate::state::ApiState;
use axum::extract::State;
use axum::http::StatusCode;
use muster_model::id::{TenantId, TokenId};
use muster_model::tenant::Access;
use muster_store::token::{self, TokenRecord};
use muster_store::{PgConnection, StoreError, tenant, tenant_scope};
use time::OffsetDateTime;
use uuid::Uuid;

/// Revoke a token
///
/// The token is refused from now on, by other API servers within 5 seconds. Members may revoke
/// their own tokens, administrators all. A repeated request changes nothing. The last token of an
/// administrator is not revoked (409, `last-administrator`): create another one first.
#[utoipa::path(
    delete, path = "/tokens/{id}", operation_id = "revokeToken", tag = "tokens",
    params(("id" = TokenId, Path, description = "The token")),
    responses((status = 204, description = "Revoked")),
)]
#[tracing::instrument(name = "api.token.revoke", skip_all, fields(token.id = %id))]
pub async fn revoke(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<TokenId>,
    Params(()): Params<()>,
) -> Result<StatusCode, ApiError> {
    let now = clock::now();
    let mut tx = app.begin(&caller).await?;
    let (tenant_id, found) = find(&mut tx, &caller, id)
        .await?
        .ok_or_else(|| ApiError::not_found(format!("token {id}")))?;
    if found.user_id != caller.user_id && !caller.is_admin() {
        let detail = format!(
            "the token is {}'s; only its user and administrators may revoke it",
            found.user_name
        );
        return Err(ApiError::new(ProblemKind::Forbidden, detail));
    }
    let is_good = found.revoked_at.is_none() && found.expires_at.is_none_or(|at| at > now);
    if found.access == Access::Admin && is_good {
        must_not_be_the_last(&mut tx, &found, now).await?;
    }
    tenant_scope::tenant(&mut tx, tenant_id).await?;
    token::revoke(&mut tx, id, now).await?;
    tx.commit().await.map_err(StoreError::from)?;
    app.tokens.forget(id);
    Ok(StatusCode::NO_CONTENT)
}

/// Returns the token and its tenant: of the caller's tenant, or of any for an administrator. Leaves
/// the transaction in that tenant's scope.
async fn find(
    conn: &mut PgConnection,
    caller: &Caller,
    id: TokenId,
) -> Result<Option<(TenantId, TokenRecord)>, StoreError> {
    if let Some(found) = find_in_scope(conn, id).await? {
        return Ok(Some((caller.tenant_id, found)));
    }
    if !caller.is_admin() {
        return Ok(None);
    }
    tenant_scope::admin(conn).await?;
    for tenant in tenant::list(conn).await? {
        tenant_scope::tenant(conn, tenant.id).await?;
        if let Some(found) = find_in_scope(conn, id).await? {
            return Ok(Some((tenant.id, found)));
        }
    }
    Ok(None)
}

/// Lists contain ids below a given one; the next higher id makes the wanted token the first.
pub(super) async fn find_in_scope(
    conn: &mut PgConnection,
    id: TokenId,
) -> Result<Option<TokenRecord>, StoreError> {
    let above = Uuid::from_u128(id.0.as_u128().saturating_add(1));
    let first = token::list(conn, Some(above.into()), 1).await?.pop();
    Ok(first.filter(|token| token.id == id))
}

/// Refuses to revoke the last token of an administrator.
async fn must_not_be_the_last(
    conn: &mut PgConnection,
    revoked: &TokenRecord,
    now: OffsetDateTime,
) -> Result<(), ApiError> {
    // If the revoked token expires within a day, it suffices that any administrator's token remains
    // now.
    let lasts = revoked.expires_at.is_none_or(|at| at > now + LASTING);
    let (until, that) = if lasts {
        (now + LASTING, "administers for longer than a day")
    } else {
        (now, "administers")
    };
    let id = revoked.id;
    if administrators::stay(conn, TokenRevocation::Token(id), until).await? {
        return Ok(());
    }
    let detail = format!(
        "token {id} is the last that {that}, and without it no administrator could create another; create one first with access admin"
    );
    Err(ApiError::new(ProblemKind::LastAdministrator, detail))
}
