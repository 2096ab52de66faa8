//! `GET /jobs/{id}/tasks`.

use super::wire;
use crate::auth::Caller;
use crate::problem::ApiError;
use crate::query::{FromQuery, Params, PathParam, Query};
use crate::state::ApiState;
use axum::Json;
use axum::extract::State;
use muster_model::id::JobId;
use muster_model::view::{Page, TaskView};
use muster_store::task::{self, Revisions};
use muster_store::{PgConnection, job};

#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct TasksParams {
    /// Include tasks of earlier revisions.
    #[param(required = false, default = false)]
    pub all: bool,
}

impl FromQuery for TasksParams {
    const NAMES: &'static [&'static str] = &["all"];

    fn take(query: &mut Query) -> Self {
        Self {
            all: query.one("all", "true or false").unwrap_or(false),
        }
    }
}

/// List a job's tasks
///
/// All tasks on one page, the newest revision first.
#[utoipa::path(
    get, path = "/jobs/{id}/tasks", operation_id = "listTasks", tag = "jobs",
    params(("id" = JobId, Path, description = "The job"), TasksParams),
    responses((status = 200, description = "Its tasks", body = Page<TaskView>)),
)]
pub async fn tasks(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<JobId>,
    Params(params): Params<TasksParams>,
) -> Result<Json<Page<TaskView>>, ApiError> {
    let mut tx = app.begin(&caller).await?;
    must_exist(&mut tx, id).await?;
    let revisions = if params.all {
        Revisions::All
    } else {
        Revisions::Current
    };
    let rows = task::list(&mut tx, id, revisions).await?;
    let paces = task::paces(&mut tx, id).await?;
    Ok(Json(Page {
        items: wire::tasks(rows, &paces),
        next: None,
    }))
}

/// Refuses a job that the caller cannot see; an empty list would hide that.
pub(super) async fn must_exist(conn: &mut PgConnection, id: JobId) -> Result<(), ApiError> {
    match job::get(conn, id).await? {
        Some(_) => Ok(()),
        None => Err(ApiError::no_job(id)),
    }
}
