//! `GET /me`.

use crate::auth::Caller;
use crate::problem::Refusal;
use crate::query::Params;
use crate::state::App;
use axum::Json;
use axum::extract::State;
use muster_model::view::Me;
use muster_store::tenant;

/// Whom the token stands for
///
/// With the quota of the tenant and what of it its jobs hold.
#[utoipa::path(
    get, path = "/me", operation_id = "getMe", tag = "tokens",
    responses((status = 200, description = "The bearer", body = Me)),
)]
pub async fn me(
    State(app): State<App>,
    caller: Caller,
    Params(()): Params<()>,
) -> Result<Json<Me>, Refusal> {
    let mut tx = app.begin(&caller).await?;
    let tenant = tenant::get(&mut tx, caller.tenant_id).await?;
    let in_use = tenant::in_use(&mut tx).await?.remove(&caller.tenant_id);
    let in_use = in_use.unwrap_or_default();
    Ok(Json(Me {
        gpu_quota: tenant.and_then(|tenant| tenant.gpu_quota),
        gpus_in_use: in_use.gpus,
        jobs_in_use: in_use.jobs,
        tenant_id: caller.tenant_id,
        tenant: caller.tenant_name.clone(),
        user_id: caller.user_id,
        user: caller.user_name.clone(),
        token_id: caller.token_id,
        access: caller.access,
    }))
}
