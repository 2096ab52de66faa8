//! `DELETE /tokens?user=NAME`.

use super::administrators::{self, LASTING, TokenRevocation};
use super::list;
use crate::auth::Caller;
use crate::clock;
use crate::problem::{ApiError, ProblemKind};
use crate::query::{FromQuery, Params, Query};
use crate::state::ApiState;
use axum::Json;
use axum::extract::State;
use muster_model::id::TenantId;
use muster_model::view::RevokedTokens;
use muster_store::{PgConnection, StoreError, tenant_scope, token, user};
use time::OffsetDateTime;

#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct RevokeParams {
    /// Name of the user.
    #[param(value_type = String)]
    pub user: Option<String>,
    /// Name of the user's tenant; for administrators. Default: that of the caller.
    pub tenant: Option<String>,
}

impl FromQuery for RevokeParams {
    const NAMES: &'static [&'static str] = &["user", "tenant"];

    fn take(query: &mut Query) -> Self {
        let user: Option<String> = query.one("user", "the name of a user");
        if user.is_none() {
            query.wrong("user", "nothing", "the name of a user");
        }
        Self {
            user,
            tenant: query.one("tenant", "the name of a tenant"),
        }
    }
}

/// Revoke all tokens of a user
///
/// The tokens are refused from now on, by other API servers within 5 seconds. This includes tokens
/// that were created with a stolen one. Members may revoke their own tokens, including that of the
/// request; administrators those of any user. Refused if no administrator's token would remain
/// (409, `last-administrator`).
#[utoipa::path(
    delete, path = "/tokens", operation_id = "revokeTokensOfUser", tag = "tokens", params(RevokeParams),
    responses((status = 200, description = "Revoked", body = RevokedTokens)),
)]
#[tracing::instrument(name = "api.token.revoke_user", skip_all)]
pub async fn revoke_user(
    State(app): State<ApiState>,
    caller: Caller,
    Params(params): Params<RevokeParams>,
) -> Result<Json<RevokedTokens>, ApiError> {
    let now = clock::now();
    let name = params.user.unwrap_or_default();
    let mut tx = app.begin(&caller).await?;
    let (tenant, _) = list::tenants(&mut tx, &caller, params.tenant.as_deref(), false)
        .await?
        .remove(0);
    if !caller.is_admin() && name != caller.user_name {
        let detail = format!("only {name} and administrators may revoke the tokens of {name}");
        return Err(ApiError::new(ProblemKind::Forbidden, detail));
    }
    tenant_scope::tenant(&mut tx, tenant).await?;
    let found = user::by_name(&mut tx, tenant, &name).await?;
    let found = found.ok_or_else(|| ApiError::not_found(format!("user {name}")))?;
    token::hold_administrators(&mut tx).await?;
    let kept = administers(&mut tx, now).await?;
    let revoked = token::revoke_of(&mut tx, found.id, now).await?;
    administrators_must_stay(&mut tx, tenant, kept, now).await?;
    tx.commit().await.map_err(StoreError::from)?;
    for id in &revoked {
        app.tokens.forget(*id);
    }
    let revoked = u64::try_from(revoked.len()).unwrap_or(u64::MAX);
    Ok(Json(RevokedTokens { revoked }))
}

/// Returns until when the tenant in scope has an administrator's token: for longer than a day, or
/// now.
async fn administers(
    conn: &mut PgConnection,
    now: OffsetDateTime,
) -> Result<Option<OffsetDateTime>, StoreError> {
    for until in [now + LASTING, now] {
        if token::administers(conn, None, until).await? {
            return Ok(Some(until));
        }
    }
    Ok(None)
}

/// Checks the remaining tokens, in the transaction that has revoked the others.
async fn administrators_must_stay(
    conn: &mut PgConnection,
    tenant: TenantId,
    before: Option<OffsetDateTime>,
    now: OffsetDateTime,
) -> Result<(), ApiError> {
    tenant_scope::tenant(conn, tenant).await?;
    let Some(until) = before else {
        return Ok(());
    };
    if administers(conn, now).await? == Some(until)
        || administrators::stay(conn, TokenRevocation::Nothing, until).await?
    {
        return Ok(());
    }
    Err(ApiError::new(
        ProblemKind::LastAdministrator,
        "no administrator could ask any more; make a token with access admin for another user first",
    ))
}
