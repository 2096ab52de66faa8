//! `DELETE /priority-classes/{name}`.

use crate::auth::Admin;
use crate::problem::ApiError;
use crate::query::Params;
use crate::state::ApiState;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use muster_store::{StoreError, priority_class, tenant_scope};

/// Delete a priority class
///
/// For administrators. Open jobs and studies keep their numbers and the name of the class. After
/// the last class, any job may have any priority again.
#[utoipa::path(
    delete, path = "/priority-classes/{name}", operation_id = "deletePriorityClass", tag = "priorities",
    params(("name" = String, Path, description = "Name of the class")),
    responses((status = 204, description = "Deleted")),
)]
#[tracing::instrument(name = "api.priority.delete", skip_all, fields(class = name))]
pub async fn delete(
    State(app): State<ApiState>,
    Admin(caller): Admin,
    Path(name): Path<String>,
    Params(()): Params<()>,
) -> Result<StatusCode, ApiError> {
    let mut tx = app.begin(&caller).await?;
    tenant_scope::admin(&mut tx).await?;
    if !priority_class::delete(&mut tx, &name).await? {
        return Err(ApiError::not_found(format!(
            "priority class {name}; `muster priorities` lists all"
        )));
    }
    tx.commit().await.map_err(StoreError::from)?;
    Ok(StatusCode::NO_CONTENT)
}
