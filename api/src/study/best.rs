//! `GET /studies/{id}/best`.

use super::wire;
use crate::auth::Caller;
use crate::problem::Refusal;
use crate::query::{self, FromQuery, Named, Params, Query};
use crate::state::App;
use axum::Json;
use axum::extract::State;
use muster_model::id::StudyId;
use muster_model::study::BudgetUnit;
use muster_model::view::{BestTrialView, Page};
use muster_store::study::trial;
use muster_store::{checkpoint, job};

#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct BestParams {
    /// Items on the page.
    #[param(minimum = 1, maximum = 500, default = 50, required = false)]
    pub limit: u32,
    /// `continue` of the page before.
    #[param(rename = "continue", value_type = Option<String>)]
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

/// Show the best trial, or the Pareto front, with the checkpoints
///
/// In the order of their creation. A checkpoint's files are downloaded as those of the trial's job.
#[utoipa::path(
    get, path = "/studies/{id}/best", operation_id = "getBestTrials", tag = "studies",
    params(("id" = StudyId, Path, description = "The study"), BestParams),
    responses((status = 200, description = "A page of them; none while no trial has completed a rung", body = Page<BestTrialView>)),
)]
pub async fn best(
    State(app): State<App>,
    caller: Caller,
    Named(id): Named<StudyId>,
    Params(params): Params<BestParams>,
) -> Result<Json<Page<BestTrialView>>, Refusal> {
    let mut tx = app.begin(&caller).await?;
    let study = wire::find(&mut tx, id).await?;
    let unit = study.document.search.budget.unit;
    let best = study.best.iter().map(|trial| trial.number);
    let rest = best.filter(|number| params.after.is_none_or(|after| *number > after));
    let numbers: Vec<u32> = rest.take(params.limit as usize + 1).collect();
    let numbers = query::page(numbers, params.limit, u32::to_string, |number| number);
    let mut items = Vec::new();
    for trial in trial::named(&mut tx, id, &numbers.items).await? {
        let (mut written, mut model_path) = (None, None);
        let job = match trial.job_id {
            Some(job) => job::get(&mut tx, job).await?,
            None => None,
        };
        if let Some(job) = job {
            let per_unit = match unit {
                BudgetUnit::Epochs => job.job.spec.steps_per_epoch(),
                BudgetUnit::Steps => 1,
            };
            let step = trial.outcome.as_ref().map_or(0, |one| one.step);
            let reached = step.saturating_mul(per_unit);
            let found = checkpoint::list(&mut tx, job.job.id).await?;
            written = found
                .into_iter()
                .find(|one| one.retained && one.written.step <= reached)
                .map(|one| one.written);
            model_path = job.model_path;
        }
        items.push(BestTrialView {
            trial,
            checkpoint: written,
            model_path,
        });
    }
    let next = numbers.next;
    Ok(Json(Page { items, next }))
}
