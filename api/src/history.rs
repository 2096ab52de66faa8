//! `GET /events`: recent events that the tenant may see.

use crate::auth::Caller;
use crate::problem::ApiError;
use crate::query::{self, FromQuery, Params, Query};
use crate::state::ApiState;
use axum::Json;
use axum::extract::State;
use muster_model::event::ROUTINE;
use muster_model::view::{EventView, Page};
use muster_store::event::{self, EventCursor};

#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct RecentParams {
    /// Include routine events: starts and stops of tasks, evaluations, checkpoints.
    #[param(required = false, default = true)]
    pub routine: bool,
    /// Items per page.
    #[param(minimum = 1, maximum = 500, default = 50, required = false)]
    pub limit: u32,
    /// Value of `continue` of the last page.
    #[param(rename = "continue", value_type = Option<String>, pattern = "^[0-9]+-[0-9]+$")]
    pub before: Option<EventCursor>,
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
/// Events of the tenant's jobs and of the nodes. A stream that begins after the first event's
/// cursor continues the list.
#[utoipa::path(
    get, path = "/events", operation_id = "listEvents", tag = "streams", params(RecentParams),
    responses((status = 200, description = "A page of the history", body = Page<EventView>)),
)]
pub async fn recent(
    State(app): State<ApiState>,
    caller: Caller,
    Params(params): Params<RecentParams>,
) -> Result<Json<Page<EventView>>, ApiError> {
    let without: Vec<String> = if params.routine {
        Vec::new()
    } else {
        ROUTINE.map(str::to_owned).to_vec()
    };
    let mut tx = app.begin(&caller).await?;
    let rows = event::recent(&mut tx, &without, params.before, params.limit).await?;
    Ok(Json(query::shown(
        rows,
        |event| event.cursor.to_string(),
        crate::job::wire::event,
    )))
}
