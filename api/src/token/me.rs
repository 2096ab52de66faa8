//! `GET /me`.

use crate::auth::Caller;
use crate::clock;
use crate::problem::ApiError;
use crate::query::Params;
use crate::state::ApiState;
use crate::tenant::wire::TenantUsage;
use axum::Json;
use axum::extract::State;
use muster_model::view::Me;
use muster_store::tenant;

/// Get the user, tenant and token of the caller
///
/// With the quota and the limits of the tenant and their use.
#[utoipa::path(
    get, path = "/me", operation_id = "getMe", tag = "tokens",
    responses((status = 200, description = "The caller", body = Me)),
)]
pub async fn me(
    State(app): State<ApiState>,
    caller: Caller,
    Params(()): Params<()>,
) -> Result<Json<Me>, ApiError> {
    let mut tx = app.begin(&caller).await?;
    let tenant = tenant::get(&mut tx, caller.tenant_id).await?;
    let all = TenantUsage::read(&mut tx, clock::now()).await?;
    let in_use = all.in_use(caller.tenant_id);
    Ok(Json(Me {
        gpu_quota: tenant.and_then(|tenant| tenant.gpu_quota),
        gpus_in_use: in_use.gpus,
        jobs_in_use: in_use.jobs,
        limits: all.limits(caller.tenant_id),
        used: all.used(caller.tenant_id),
        tenant_id: caller.tenant_id,
        tenant: caller.tenant_name.clone(),
        user_id: caller.user_id,
        user: caller.user_name.clone(),
        token_id: caller.token_id,
        access: caller.access,
    }))
}
