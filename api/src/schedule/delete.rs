//! `DELETE /schedules/{name}`.

use super::missing;
use crate::auth::Caller;
use crate::clock;
use crate::problem::ApiError;
use crate::query::Params;
use crate::state::ApiState;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use muster_store::{StoreError, schedule};

/// Delete a schedule
///
/// Its jobs stay.
#[utoipa::path(
    delete, path = "/schedules/{name}", operation_id = "deleteSchedule", tag = "schedules",
    params(("name" = String, Path, description = "Name of the schedule")),
    responses((status = 204, description = "Deleted")),
)]
#[tracing::instrument(name = "api.schedule.delete", skip_all, fields(schedule = name))]
pub async fn delete(
    State(app): State<ApiState>,
    caller: Caller,
    Path(name): Path<String>,
    Params(()): Params<()>,
) -> Result<StatusCode, ApiError> {
    ApiError::check_label(&name)?;
    let mut tx = app.begin(&caller).await?;
    let (tenant, actor) = (caller.tenant_id, caller.actor());
    if !schedule::delete(&mut tx, tenant, &name, &actor, clock::now()).await? {
        return Err(missing(&name));
    }
    tx.commit().await.map_err(StoreError::from)?;
    Ok(StatusCode::NO_CONTENT)
}
