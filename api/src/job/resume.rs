//! `POST /jobs/{id}/resume`.

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

/// Resume a paused job
///
/// The job is queued again and continues from its newest checkpoint. A request for a job that is
/// not paused changes nothing.
#[utoipa::path(
    post, path = "/jobs/{id}/resume", operation_id = "resumeJob", tag = "jobs",
    params(("id" = JobId, Path, description = "The job")),
    responses((status = 202, description = "Accepted; takes effect in the next scheduling round", body = JobView)),
)]
#[tracing::instrument(name = "api.job.resume", skip_all, fields(job.id = %id))]
pub async fn resume(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<JobId>,
    Params(()): Params<()>,
) -> Result<(StatusCode, Json<JobView>), ApiError> {
    intent::state(&app, &caller, id, "resume", Intent::Run).await
}
