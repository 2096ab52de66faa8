//! `POST /schedules/{name}/pause` and `/resume`.

use super::timing::Timing;
use super::{found, wire};
use crate::auth::Caller;
use crate::clock;
use crate::problem::{ApiError, ProblemKind};
use crate::query::Params;
use crate::state::ApiState;
use axum::Json;
use axum::extract::{Path, State};
use muster_model::schedule::SchedulePause;
use muster_model::view::ScheduleView;
use muster_store::{StoreError, schedule};

/// Pause a schedule
///
/// It submits nothing until it is resumed. Its jobs continue.
#[utoipa::path(
    post, path = "/schedules/{name}/pause", operation_id = "pauseSchedule", tag = "schedules",
    params(("name" = String, Path, description = "Name of the schedule")),
    responses((status = 200, description = "Paused, perhaps before", body = ScheduleView)),
)]
#[tracing::instrument(name = "api.schedule.pause", skip_all, fields(schedule = name))]
pub async fn pause(
    State(app): State<ApiState>,
    caller: Caller,
    Path(name): Path<String>,
    Params(()): Params<()>,
) -> Result<Json<ScheduleView>, ApiError> {
    let mut tx = app.begin(&caller).await?;
    found(&mut tx, &name).await?;
    let (at, why) = ((caller.tenant_id, name.as_str()), SchedulePause::ByUser);
    schedule::pause(&mut tx, at, why, Some(&caller.actor()), clock::now()).await?;
    let row = found(&mut tx, &name).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(Json(wire::schedule(row)))
}

/// Resume a schedule
///
/// The first planned time is after the request: times of the pause are not caught up.
#[utoipa::path(
    post, path = "/schedules/{name}/resume", operation_id = "resumeSchedule", tag = "schedules",
    params(("name" = String, Path, description = "Name of the schedule")),
    responses((status = 200, description = "Resumed, perhaps before", body = ScheduleView)),
)]
#[tracing::instrument(name = "api.schedule.resume", skip_all, fields(schedule = name))]
pub async fn resume(
    State(app): State<ApiState>,
    caller: Caller,
    Path(name): Path<String>,
    Params(()): Params<()>,
) -> Result<Json<ScheduleView>, ApiError> {
    let mut tx = app.begin(&caller).await?;
    let row = found(&mut tx, &name).await?;
    let now = clock::now();
    let document = &row.document;
    let timing = Timing::parse(&document.cron, &document.time_zone)
        .map_err(|errors| ApiError::of_fields(ProblemKind::InvalidBody, errors))?;
    let next_at = timing.next_after(now).unwrap_or(row.next_at);
    let at = (caller.tenant_id, name.as_str());
    schedule::resume(&mut tx, at, next_at, &caller.actor(), now).await?;
    let row = found(&mut tx, &name).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(Json(wire::schedule(row)))
}
