//! `POST /jobs/{id}/continue`.

use super::intent::ConditionalIntent;
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

/// Continue a suspended job
///
/// Its workers resume from the step at which they were suspended, on the same GPUs, as soon as
/// these are free. A request for a job that its owner has not suspended changes nothing.
#[utoipa::path(
    post, path = "/jobs/{id}/continue", operation_id = "continueJob", tag = "jobs",
    params(("id" = JobId, Path, description = "The job")),
    responses((status = 202, description = "Accepted; takes effect in the next scheduling round", body = JobView)),
)]
#[tracing::instrument(name = "api.job.continue", skip_all, fields(job.id = %id))]
pub async fn continue_job(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<JobId>,
    Params(()): Params<()>,
) -> Result<(StatusCode, Json<JobView>), ApiError> {
    let wanted = ConditionalIntent {
        verb: "continue",
        intent: Intent::Run,
        fits: |_, intent| intent == Intent::Suspend,
        unfit: |_| Ok(()),
    };
    wanted.state(&app, &caller, id).await
}
