//! `GET /secrets`.

use super::not_stored;
use crate::auth::Caller;
use crate::problem::ApiError;
use crate::query::Params;
use crate::state::ApiState;
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use muster_model::view::{Page, SecretView};
use muster_store::secret;

/// List the tenant's secrets
///
/// By name, without their values.
#[utoipa::path(
    get, path = "/secrets", operation_id = "listSecrets", tag = "secrets",
    responses((status = 200, description = "All secrets", body = Page<SecretView>)),
)]
#[tracing::instrument(name = "api.secret.list", skip_all)]
pub async fn list(
    State(app): State<ApiState>,
    caller: Caller,
    Params(()): Params<()>,
) -> Result<Response, ApiError> {
    let mut tx = app.begin(&caller).await?;
    let items = secret::list(&mut tx).await?;
    Ok(not_stored(Json(Page { items, next: None })))
}
