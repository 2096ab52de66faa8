//! `DELETE /studies/{id}`.

use super::wire;
use crate::auth::Caller;
use crate::clock;
use crate::problem::ApiError;
use crate::query::{Params, PathParam};
use crate::state::ApiState;
use axum::extract::State;
use axum::http::StatusCode;
use muster_model::id::StudyId;
use muster_store::StoreError;
use muster_store::study::{self, StudyOrderOutcome};

/// Delete a study that has ended
///
/// The study disappears from lists, together with the jobs of its trials. Their checkpoints and
/// models are erased within minutes, once no open job starts from them. The request is refused
/// while an earlier order of the study waits for the scheduler.
#[utoipa::path(
    delete, path = "/studies/{id}", operation_id = "deleteStudy", tag = "studies",
    params(("id" = StudyId, Path, description = "The study")),
    responses((status = 204, description = "Deleted")),
)]
#[tracing::instrument(name = "api.study.delete", skip_all, fields(study.id = %id))]
pub async fn delete(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<StudyId>,
    Params(()): Params<()>,
) -> Result<StatusCode, ApiError> {
    let mut tx = app.begin(&caller).await?;
    match study::delete(&mut tx, id, clock::now()).await? {
        StudyOrderOutcome::Done => {
            tx.commit().await.map_err(StoreError::from)?;
            Ok(StatusCode::NO_CONTENT)
        }
        StudyOrderOutcome::Refused { phase } => Err(wire::wrong_phase(
            phase,
            "delete",
            "finished or cancelled: cancel it first",
        )),
        StudyOrderOutcome::Busy { waiting } => Err(wire::busy(waiting)),
        StudyOrderOutcome::TooMany { .. } | StudyOrderOutcome::TooManyProposed { .. } => {
            unreachable!("a deletion asks for no trials")
        }
        StudyOrderOutcome::NotFound => Err(wire::missing(id)),
    }
}
