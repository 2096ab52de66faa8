//! `GET /jobs/{id}/events`.

use super::{tasks, wire};
use crate::auth::Caller;
use crate::problem::ApiError;
use crate::query::{FromQuery, PAGE_MAX, Params, PathParam, Query};
use crate::state::ApiState;
use axum::Json;
use axum::extract::State;
use muster_model::id::JobId;
use muster_model::view::{EventView, Page};
use muster_store::event::{self, EventCursor, EventFilter};

#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct EventsParams {
    /// Only events after this cursor: that of any event, or the `continue` of a page.
    #[param(value_type = Option<String>, pattern = "^[0-9]+-[0-9]+$")]
    pub after: Option<EventCursor>,
    /// Same as `after`.
    #[param(rename = "continue", value_type = Option<String>, pattern = "^[0-9]+-[0-9]+$")]
    pub from: Option<EventCursor>,
    /// Items per page.
    #[param(minimum = 1, maximum = 500, default = 50, required = false)]
    pub limit: u32,
}

impl FromQuery for EventsParams {
    const NAMES: &'static [&'static str] = &["after", "continue", "limit"];

    fn take(query: &mut Query) -> Self {
        Self {
            after: query.one("after", "the cursor of an event"),
            from: query.after(),
            limit: query.limit(),
        }
    }
}

/// List a job's events, oldest first
#[utoipa::path(
    get, path = "/jobs/{id}/events", operation_id = "listJobEvents", tag = "jobs",
    params(("id" = JobId, Path, description = "The job"), EventsParams),
    responses((status = 200, description = "A page of its history", body = Page<EventView>)),
)]
pub async fn events(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<JobId>,
    Params(params): Params<EventsParams>,
) -> Result<Json<Page<EventView>>, ApiError> {
    let mut tx = app.begin(&caller).await?;
    tasks::must_exist(&mut tx, id).await?;
    let filter = EventFilter {
        job_id: Some(id),
        node_id: None,
    };
    let limit = params.limit.min(PAGE_MAX);
    let rows = event::page(&mut tx, filter, params.after.max(params.from), limit).await?;
    Ok(Json(crate::query::shown(
        rows,
        |event| event.cursor.to_string(),
        wire::event,
    )))
}
