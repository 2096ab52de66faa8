//! `DELETE /jobs/{id}`.

use crate::auth::Caller;
use crate::clock;
use crate::problem::{ApiError, ProblemKind};
use crate::query::{Params, PathParam};
use crate::state::ApiState;
use axum::extract::State;
use axum::http::StatusCode;
use muster_model::id::JobId;
use muster_store::StoreError;
use muster_store::job::{self, DeleteOutcome};

/// Delete a job that has ended
///
/// The job disappears from lists. Its checkpoints and models are erased within minutes, once no
/// open job starts from them.
#[utoipa::path(
    delete, path = "/jobs/{id}", operation_id = "deleteJob", tag = "jobs", params(("id" = JobId, Path, description = "The job")),
    responses((status = 204, description = "Deleted")),
)]
#[tracing::instrument(name = "api.job.delete", skip_all, fields(job.id = %id))]
pub async fn delete(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<JobId>,
    Params(()): Params<()>,
) -> Result<StatusCode, ApiError> {
    let mut tx = app.begin(&caller).await?;
    match job::delete(&mut tx, id, Some(&caller.actor()), clock::now()).await? {
        DeleteOutcome::Deleted => {
            tx.commit().await.map_err(StoreError::from)?;
            Ok(StatusCode::NO_CONTENT)
        }
        DeleteOutcome::NotEnded { phase } => Err(ApiError::new(
            ProblemKind::WrongPhase,
            format!(
                "the job is {}; delete needs succeeded, failed or cancelled: cancel it first",
                phase.as_str()
            ),
        )),
        DeleteOutcome::NotFound => Err(ApiError::no_job(id)),
    }
}
