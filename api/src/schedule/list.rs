//! `GET /schedules` and `GET /schedules/{name}`.

use super::{found, unreadable, wire};
use crate::auth::Caller;
use crate::problem::ApiError;
use crate::query::Params;
use crate::state::ApiState;
use axum::Json;
use axum::extract::{Path, State};
use muster_model::view::{Page, ScheduleView};
use muster_store::schedule;

/// List the tenant's schedules
///
/// By name.
#[utoipa::path(
    get, path = "/schedules", operation_id = "listSchedules", tag = "schedules",
    responses((status = 200, description = "All schedules", body = Page<ScheduleView>)),
)]
#[tracing::instrument(name = "api.schedule.list", skip_all)]
pub async fn list(
    State(app): State<ApiState>,
    caller: Caller,
    Params(()): Params<()>,
) -> Result<Json<Page<ScheduleView>>, ApiError> {
    let mut tx = app.begin(&caller).await?;
    let rows = schedule::list(&mut tx).await.map_err(unreadable)?;
    let items = rows.into_iter().map(wire::schedule).collect();
    Ok(Json(Page { items, next: None }))
}

/// Get a schedule
#[utoipa::path(
    get, path = "/schedules/{name}", operation_id = "getSchedule", tag = "schedules",
    params(("name" = String, Path, description = "Name of the schedule")),
    responses((status = 200, description = "The schedule", body = ScheduleView)),
)]
#[tracing::instrument(name = "api.schedule.get", skip_all, fields(schedule = name))]
pub async fn get(
    State(app): State<ApiState>,
    caller: Caller,
    Path(name): Path<String>,
    Params(()): Params<()>,
) -> Result<Json<ScheduleView>, ApiError> {
    let mut tx = app.begin(&caller).await?;
    let row = found(&mut tx, &name).await?;
    Ok(Json(wire::schedule(row)))
}
