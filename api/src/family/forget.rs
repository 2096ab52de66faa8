//! `DELETE /families/{family}`.

use crate::auth::Caller;
use crate::problem::ApiError;
use crate::query::Params;
use crate::state::ApiState;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use muster_store::{StoreError, family};

/// Forget what is known of a family of jobs
///
/// The speeds by GPU kind and placement of all its jobs are deleted. Running jobs keep
/// their own speeds by size; later jobs start as those of an unknown family. The jobs themselves
/// stay.
#[utoipa::path(
    delete, path = "/families/{family}", operation_id = "forgetFamily", tag = "families",
    params(("family" = String, Path, description = "Key of the family")),
    responses((status = 204, description = "Forgotten")),
)]
#[tracing::instrument(name = "api.family.forget", skip_all, fields(family = key))]
pub async fn forget(
    State(app): State<ApiState>,
    caller: Caller,
    Path(key): Path<String>,
    Params(()): Params<()>,
) -> Result<StatusCode, ApiError> {
    let mut tx = app.begin(&caller).await?;
    if family::forget(&mut tx, &key).await? == 0 {
        return Err(ApiError::not_found(format!(
            "family {key} with measurements; `muster families list` shows those of this tenant"
        )));
    }
    tx.commit().await.map_err(StoreError::from)?;
    Ok(StatusCode::NO_CONTENT)
}
