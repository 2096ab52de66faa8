//! `GET /jobs/{id}/checkpoints`.

use super::{tasks, wire};
use crate::auth::Caller;
use crate::problem::Refusal;
use crate::query::{Named, Params};
use crate::state::App;
use axum::Json;
use axum::extract::State;
use muster_model::id::JobId;
use muster_model::view::{CheckpointView, Page};
use muster_store::checkpoint;

/// List a job's checkpoints, newest first
///
/// All on one page, those that were pruned from disk too.
#[utoipa::path(
    get, path = "/jobs/{id}/checkpoints", operation_id = "listCheckpoints", tag = "jobs",
    params(("id" = JobId, Path, description = "The job")),
    responses((status = 200, description = "Its checkpoints", body = Page<CheckpointView>)),
)]
pub async fn checkpoints(
    State(app): State<App>,
    caller: Caller,
    Named(id): Named<JobId>,
    Params(()): Params<()>,
) -> Result<Json<Page<CheckpointView>>, Refusal> {
    let mut tx = app.begin(&caller).await?;
    tasks::must_exist(&mut tx, id).await?;
    let rows = checkpoint::list(&mut tx, id).await?;
    Ok(Json(Page {
        items: rows.into_iter().map(wire::checkpoint).collect(),
        next: None,
    }))
}
