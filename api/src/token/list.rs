//! `GET /tokens`.

use super::wire;
use crate::auth::Caller;
use crate::problem::{ApiError, ProblemKind};
use crate::query::{self, FromQuery, Params, Query};
use crate::state::ApiState;
use axum::Json;
use axum::extract::State;
use muster_model::id::{TenantId, TokenId};
use muster_model::view::{Page, TokenView};
use muster_store::pool::Transaction;
use muster_store::token::{self, TokenRecord};
use muster_store::{tenant, tenant_scope};
use std::cmp::Reverse;

#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct TokensParams {
    /// Name of the tenant; for administrators. Default: that of the caller.
    pub tenant: Option<String>,
    /// Tokens of all tenants; for administrators.
    #[param(required = false, default = false)]
    pub all_tenants: bool,
    /// Items per page.
    #[param(minimum = 1, maximum = 500, default = 50, required = false)]
    pub limit: u32,
    /// Value of `continue` of the last page.
    #[param(rename = "continue", value_type = Option<String>, pattern = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$")]
    pub after: Option<TokenId>,
}

impl FromQuery for TokensParams {
    const NAMES: &'static [&'static str] = &["tenant", "all_tenants", "limit", "continue"];

    fn take(query: &mut Query) -> Self {
        let tenant: Option<String> = query.one("tenant", "the name of a tenant");
        let all_tenants = query.one("all_tenants", "true or false").unwrap_or(false);
        if let Some(name) = tenant.as_ref().filter(|_| all_tenants) {
            query.wrong("tenant", name, "either tenant or all_tenants, not both");
        }
        Self {
            tenant,
            all_tenants,
            limit: query.limit(),
            after: query.after(),
        }
    }
}

/// List the tenant's tokens, newest first
///
/// Includes revoked tokens, without secrets. Administrators may list those of another tenant, or of
/// all.
#[utoipa::path(
    get, path = "/tokens", operation_id = "listTokens", tag = "tokens", params(TokensParams),
    responses((status = 200, description = "A page of tokens", body = Page<TokenView>)),
)]
pub async fn list(
    State(app): State<ApiState>,
    caller: Caller,
    Params(params): Params<TokensParams>,
) -> Result<Json<Page<TokenView>>, ApiError> {
    let mut tx = app.begin(&caller).await?;
    let tenants = tenants(
        &mut tx,
        &caller,
        params.tenant.as_deref(),
        params.all_tenants,
    )
    .await?;
    let mut rows: Vec<(TokenRecord, String)> = Vec::new();
    for (id, name) in tenants {
        // Tokens are visible only in the scope of their tenant, also for administrators.
        tenant_scope::tenant(&mut tx, id).await?;
        let listed = token::list(&mut tx, params.after, params.limit + 1).await?;
        rows.extend(listed.into_iter().map(|token| (token, name.clone())));
    }
    rows.sort_by_key(|(token, _)| Reverse(token.id));
    rows.truncate(params.limit as usize + 1);
    Ok(Json(query::page(
        rows,
        params.limit,
        |(token, _)| token.id.to_string(),
        |(token, tenant)| wire::token(token, &tenant),
    )))
}

/// Returns the tenants whose tokens are listed.
pub(super) async fn tenants(
    tx: &mut Transaction,
    caller: &Caller,
    named: Option<&str>,
    all: bool,
) -> Result<Vec<(TenantId, String)>, ApiError> {
    let own = (caller.tenant_id, caller.tenant_name.clone());
    let other = named.filter(|name| *name != own.1);
    if other.is_none() && !all {
        return Ok(vec![own]);
    }
    if !caller.is_admin() {
        let detail = "tokens of other tenants are for administrators";
        return Err(ApiError::new(ProblemKind::Forbidden, detail));
    }
    tenant_scope::admin(tx).await?;
    let Some(name) = other else {
        let all = tenant::list(tx).await?.into_iter();
        return Ok(all.map(|tenant| (tenant.id, tenant.name)).collect());
    };
    let found = tenant::by_name(tx, name).await?;
    let found = found.ok_or_else(|| ApiError::not_found(format!("tenant {name}")))?;
    Ok(vec![(found.id, found.name)])
}
