//! `GET /tenants`.

use super::wire;
use crate::auth::Admin;
use crate::clock;
use crate::problem::ApiError;
use crate::query::{self, PageParams, Params};
use crate::state::ApiState;
use axum::Json;
use axum::extract::State;
use muster_model::view::{Page, TenantView};
use muster_store::{tenant, tenant_scope};

/// List tenants by name
///
/// For administrators.
#[utoipa::path(
    get, path = "/tenants", operation_id = "listTenants", tag = "tenants", params(PageParams),
    responses((status = 200, description = "A page of tenants", body = Page<TenantView>)),
)]
pub async fn list(
    State(app): State<ApiState>,
    Admin(caller): Admin,
    Params(params): Params<PageParams>,
) -> Result<Json<Page<TenantView>>, ApiError> {
    let mut tx = app.begin(&caller).await?;
    tenant_scope::admin(&mut tx).await?;
    let after = params.after.unwrap_or_default();
    let rows: Vec<_> = tenant::list(&mut tx)
        .await?
        .into_iter()
        .filter(|tenant| tenant.name > after)
        .collect();
    let all = wire::TenantUsage::read(&mut tx, clock::now()).await?;
    Ok(Json(query::page(
        rows,
        params.limit,
        |tenant| tenant.name.clone(),
        |tenant| all.tenant(tenant),
    )))
}
