//! `GET /studies/{id}/best`.

use super::wire;
use crate::auth::Caller;
use crate::problem::ApiError;
use crate::query::{self, FromQuery, Params, PathParam, Query};
use crate::state::ApiState;
use axum::Json;
use axum::extract::State;
use muster_model::id::{JobId, StudyId};
use muster_model::study::BudgetUnit;
use muster_model::view::{BestTrialView, Page};
use muster_store::study::trial;
use muster_store::{checkpoint, job};

#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct BestParams {
    /// Items per page.
    #[param(minimum = 1, maximum = 500, default = 50, required = false)]
    pub limit: u32,
    /// Value of `continue` of the last page.
    #[param(rename = "continue", value_type = Option<String>, pattern = "^[0-9]+$")]
    pub after: Option<u32>,
}

impl FromQuery for BestParams {
    const NAMES: &'static [&'static str] = &["limit", "continue"];

    fn take(query: &mut Query) -> Self {
        Self {
            limit: query.limit(),
            after: query.after(),
        }
    }
}

/// List the best trial, or the Pareto front, with checkpoints
///
/// In the order of creation. The files of a checkpoint can be downloaded from the trial's job.
#[utoipa::path(
    get, path = "/studies/{id}/best", operation_id = "getBestTrials", tag = "studies",
    params(("id" = StudyId, Path, description = "The study"), BestParams),
    responses((status = 200, description = "A page of trials; empty until a trial has completed a rung", body = Page<BestTrialView>)),
)]
pub async fn best(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<StudyId>,
    Params(params): Params<BestParams>,
) -> Result<Json<Page<BestTrialView>>, ApiError> {
    let mut tx = app.begin(&caller).await?;
    let unit = wire::document(&mut tx, id).await?.search.budget.unit;
    let found = trial::front(&mut tx, id, params.after, params.limit + 1).await?;
    let page = query::page(found, params.limit, |one| one.number.to_string(), |one| one);
    let jobs: Vec<JobId> = page.items.iter().filter_map(|one| one.job_id).collect();
    let mut jobs = job::trained(&mut tx, &jobs).await?;
    let reached = page.items.iter().filter_map(|one| {
        let id = one.job_id?;
        let per_unit = match unit {
            BudgetUnit::Epochs => jobs.get(&id)?.0.steps_per_epoch(),
            BudgetUnit::Steps => 1,
        };
        let step = one.outcome.as_ref().map_or(0, |outcome| outcome.step);
        Some((id, step.saturating_mul(per_unit)))
    });
    let reached: Vec<(JobId, u64)> = reached.collect();
    let mut written = checkpoint::newest_until(&mut tx, &reached).await?;
    let items = page.items.into_iter().map(|trial| {
        let job = trial.job_id.and_then(|id| jobs.remove(&id));
        let newest = trial.job_id.and_then(|id| written.remove(&id));
        BestTrialView {
            checkpoint: newest.map(|one| one.written),
            model_path: job.and_then(|(_, model)| model),
            trial,
        }
    });
    Ok(Json(Page {
        items: items.collect(),
        next: page.next,
    }))
}
