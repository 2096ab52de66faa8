//! `GET /jobs/{id}/progress`.

use super::{tasks, wire};
use crate::auth::Caller;
use crate::problem::ApiError;
use crate::query::{FromQuery, Params, PathParam, Query};
use crate::state::ApiState;
use axum::Json;
use axum::extract::State;
use muster_model::id::JobId;
use muster_model::view::SeriesView;
use muster_store::progress;

#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ProgressParams {
    /// Only samples after this step.
    pub after_step: Option<u64>,
    /// Maximum number of samples; a longer series is thinned evenly, with its first and last sample
    /// kept.
    #[param(minimum = 2, maximum = 10000, default = 1000, required = false)]
    pub max_points: u32,
}

impl FromQuery for ProgressParams {
    const NAMES: &'static [&'static str] = &["after_step", "max_points"];

    fn take(query: &mut Query) -> Self {
        let after_step = query.count("after_step");
        let max_points =
            u32::try_from(query.number("max_points", 1000, 2..=10_000)).unwrap_or(1000);
        Self {
            after_step,
            max_points,
        }
    }
}

/// Get a job's training series
#[utoipa::path(
    get, path = "/jobs/{id}/progress", operation_id = "getJobProgress", tag = "jobs",
    params(("id" = JobId, Path, description = "The job"), ProgressParams),
    responses((status = 200, description = "Its samples and evaluations", body = SeriesView)),
)]
pub async fn progress(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<JobId>,
    Params(params): Params<ProgressParams>,
) -> Result<Json<SeriesView>, ApiError> {
    let mut tx = app.begin(&caller).await?;
    tasks::must_exist(&mut tx, id).await?;
    let samples = progress::samples(&mut tx, id, params.after_step, params.max_points).await?;
    let evaluations = progress::evaluations(&mut tx, id).await?;
    Ok(Json(SeriesView {
        samples: samples.into_iter().map(wire::sample).collect(),
        evaluations: evaluations.into_iter().map(wire::evaluation).collect(),
    }))
}
