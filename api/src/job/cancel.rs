//! `POST /jobs/{id}/cancel`.

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

/// Cancel a job
///
/// Its tasks write a checkpoint and stop. A repeated request changes nothing.
#[utoipa::path(
    post, path = "/jobs/{id}/cancel", operation_id = "cancelJob", tag = "jobs",
    params(("id" = JobId, Path, description = "The job")),
    responses((status = 202, description = "Accepted; takes effect in the next scheduling round", body = JobView)),
)]
#[tracing::instrument(name = "api.job.cancel", skip_all, fields(job.id = %id))]
pub async fn cancel(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<JobId>,
    Params(()): Params<()>,
) -> Result<(StatusCode, Json<JobView>), ApiError> {
    intent::state(&app, &caller, id, "cancel", Intent::Cancel).await
}
