//! `GET /jobs/{id}/checkpoints`.

use super::wire;
use crate::auth::Caller;
use crate::problem::Refusal;
use crate::query::{Named, Params};
use crate::state::App;
use axum::Json;
use axum::extract::State;
use muster_model::id::JobId;
use muster_model::view::{CheckpointView, Page};
use muster_store::{checkpoint, job, origin};

/// List a job's checkpoints, newest first
///
/// All on one page, those that were pruned too, with their size, their measures and why they stay.
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
    let job = job::get(&mut tx, id)
        .await?
        .ok_or_else(|| Refusal::not_found(format!("job {id}")))?;
    let rows = checkpoint::list(&mut tx, id).await?;
    let spared = origin::spared_of(&mut tx, id).await?;
    Ok(Json(Page {
        items: wire::checkpoints(rows, &job.job.spec.checkpoint, &spared),
        next: None,
    }))
}
