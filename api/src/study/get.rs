//! `GET /studies/{id}`.

use super::wire;
use crate::auth::Caller;
use crate::problem::ApiError;
use crate::query::{Params, PathParam};
use crate::state::ApiState;
use axum::Json;
use axum::extract::State;
use muster_model::id::StudyId;
use muster_model::view::StudyView;

/// Get a study
///
/// With the number of trials in each state, and the best trial or the Pareto front.
#[utoipa::path(
    get, path = "/studies/{id}", operation_id = "getStudy", tag = "studies",
    params(("id" = StudyId, Path, description = "The study")),
    responses((status = 200, description = "The study", body = StudyView)),
)]
pub async fn get(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<StudyId>,
    Params(()): Params<()>,
) -> Result<Json<StudyView>, ApiError> {
    let mut tx = app.begin(&caller).await?;
    Ok(Json(wire::shown(&mut tx, &caller, id).await?))
}
