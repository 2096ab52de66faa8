//! `GET /jobs/{id}`.

use super::wire;
use crate::auth::Caller;
use crate::problem::ApiError;
use crate::query::{Params, PathParam};
use crate::state::ApiState;
use axum::Json;
use axum::extract::State;
use muster_model::id::JobId;
use muster_model::view::JobView;
use muster_store::job;

/// Get a job
#[utoipa::path(
    get, path = "/jobs/{id}", operation_id = "getJob", tag = "jobs", params(("id" = JobId, Path, description = "The job")),
    responses((status = 200, description = "The job", body = JobView)),
)]
pub async fn get(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<JobId>,
    Params(()): Params<()>,
) -> Result<Json<JobView>, ApiError> {
    let mut tx = app.begin(&caller).await?;
    let row = job::get(&mut tx, id)
        .await?
        .ok_or_else(|| ApiError::no_job(id))?;
    Ok(Json(wire::job(row, &caller.tenant_name)))
}
