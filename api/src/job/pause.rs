//! `POST /jobs/{id}/pause`.

use super::intent;
use crate::auth::Caller;
use crate::problem::ApiError;
use crate::query::{Params, PathParam};
use crate::state::ApiState;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use muster_model::id::JobId;
use muster_model::job::Intent;
use muster_model::view::JobView;

/// Pause a job
///
/// Its tasks write a checkpoint and release their GPUs. A repeated request changes nothing.
#[utoipa::path(
    post, path = "/jobs/{id}/pause", operation_id = "pauseJob", tag = "jobs", params(("id" = JobId, Path, description = "The job")),
    responses((status = 202, description = "Accepted; takes effect in the next scheduling round", body = JobView)),
)]
#[tracing::instrument(name = "api.job.pause", skip_all, fields(job.id = %id))]
pub async fn pause(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<JobId>,
    Params(()): Params<()>,
) -> Result<(StatusCode, Json<JobView>), ApiError> {
    intent::state(&app, &caller, id, "pause", Intent::Pause).await
}
