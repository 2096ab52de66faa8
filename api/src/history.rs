//! `GET /events`: what happened lately, as far as the tenant may see it.

use crate::auth::Caller;
use crate::problem::Refusal;
use crate::query::{self, FromQuery, Params, Query};
use crate::state::App;
use axum::Json;
use axum::extract::State;
use muster_model::event::ROUTINE;
use muster_model::view::{EventView, Page};
use muster_store::event::{self, Cursor};

#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct RecentParams {
    /// Routine events too: starts and stops of tasks, tests, checkpoints.
    #[param(required = false, default = true)]
    pub routine: bool,
    /// Items on the page.
    #[param(minimum = 1, maximum = 500, default = 50, required = false)]
    pub limit: u32,
    /// `continue` of the page before.
    #[param(rename = "continue", value_type = Option<String>, pattern = "^[0-9]+-[0-9]+$")]
    pub before: Option<Cursor>,
}

impl FromQuery for RecentParams {
    const NAMES: &'static [&'static str] = &["routine", "limit", "continue"];

    fn take(query: &mut Query) -> Self {
        Self {
            routine: query.one("routine", "true or false").unwrap_or(true),
            limit: query.limit(),
            before: query.after(),
        }
    }
}

/// List events, newest first
///
/// Of the tenant's jobs and of the nodes. What happens from now on is in the stream, which begins after the first one's cursor.
#[utoipa::path(
    get, path = "/events", operation_id = "listEvents", tag = "streams", params(RecentParams),
    responses((status = 200, description = "A page of the history", body = Page<EventView>)),
)]
pub async fn recent(
    State(app): State<App>,
    caller: Caller,
    Params(params): Params<RecentParams>,
) -> Result<Json<Page<EventView>>, Refusal> {
    let without: Vec<String> = match params.routine {
        true => Vec::new(),
        false => ROUTINE.map(str::to_owned).to_vec(),
    };
    let mut tx = app.begin(&caller).await?;
    let rows = event::recent(&mut tx, &without, params.before, params.limit).await?;
    Ok(Json(query::shown(
        rows,
        |event| event.cursor.to_string(),
        crate::job::wire::event,
    )))
}
