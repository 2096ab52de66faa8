//! `GET /me`.

use crate::auth::Caller;
use crate::query::Params;
use axum::Json;
use muster_model::view::Me;

/// Whom the token stands for
#[utoipa::path(
    get, path = "/me", operation_id = "getMe", tag = "tokens",
    responses((status = 200, description = "The bearer", body = Me)),
)]
pub async fn me(caller: Caller, Params(()): Params<()>) -> Json<Me> {
    Json(Me {
        tenant_id: caller.tenant_id,
        tenant: caller.tenant_name.clone(),
        user_id: caller.user_id,
        user: caller.user_name.clone(),
        token_id: caller.token_id,
        access: caller.access,
    })
}
