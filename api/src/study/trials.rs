//! `GET /studies/{id}/trials`.

use super::wire;
use crate::auth::Caller;
use crate::problem::ApiError;
use crate::query::{self, FromQuery, Params, PathParam, Query};
use crate::state::ApiState;
use axum::Json;
use axum::extract::State;
use muster_model::id::StudyId;
use muster_model::study::TrialPhase;
use muster_model::view::{Page, TrialView};
use muster_store::study::trial;

/// Maximum number of trials with curves on one page: a curve may have thousands of points.
const MAX_WITH_CURVES: u32 = 100;

#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct TrialsParams {
    /// Only trials in this state.
    pub state: Option<TrialPhase>,
    /// Include the learning curve of each trial.
    #[param(required = false, default = true)]
    pub curves: bool,
    /// Items per page; with curves at most 100.
    #[param(minimum = 1, maximum = 500, default = 50, required = false)]
    pub limit: u32,
    /// Value of `continue` of the last page.
    #[param(rename = "continue", value_type = Option<String>, pattern = "^[0-9]+$")]
    pub after: Option<u32>,
}

impl FromQuery for TrialsParams {
    const NAMES: &'static [&'static str] = &["state", "curves", "limit", "continue"];

    fn take(query: &mut Query) -> Self {
        Self {
            state: state_filter(query),
            curves: query.one("curves", "true or false").unwrap_or(true),
            limit: query.limit(),
            after: query.after(),
        }
    }
}

/// List a study's trials, in the order of their creation
///
/// With their parameters, the values at the end of their rungs, and their learning curves.
#[utoipa::path(
    get, path = "/studies/{id}/trials", operation_id = "listTrials", tag = "studies",
    params(("id" = StudyId, Path, description = "The study"), TrialsParams),
    responses((status = 200, description = "A page of its trials", body = Page<TrialView>)),
)]
pub async fn trials(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<StudyId>,
    Params(params): Params<TrialsParams>,
) -> Result<Json<Page<TrialView>>, ApiError> {
    let limit = if params.curves {
        params.limit.min(MAX_WITH_CURVES)
    } else {
        params.limit
    };
    let mut tx = app.begin(&caller).await?;
    wire::exists(&mut tx, id).await?;
    let rows = trial::list(
        &mut tx,
        id,
        params.state,
        params.curves,
        params.after,
        limit + 1,
    )
    .await?;
    Ok(Json(query::page(
        rows,
        limit,
        |row| row.number.to_string(),
        |row| row,
    )))
}

/// Reads the parameter `state`. An unknown state is recorded in `query` as an error.
fn state_filter(query: &mut Query) -> Option<TrialPhase> {
    let text: String = query.one("state", "the state of a trial")?;
    let found = TrialPhase::ALL.into_iter().find(|one| one.as_str() == text);
    if found.is_none() {
        let known: Vec<_> = TrialPhase::ALL.map(TrialPhase::as_str).into();
        query.wrong("state", &text, &format!("one of {}", known.join(", ")));
    }
    found
}
