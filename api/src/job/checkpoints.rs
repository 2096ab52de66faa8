//! `GET /jobs/{id}/checkpoints`, and the archive of a program's checkpoint.

use super::{download, wire};
use crate::auth::Caller;
use crate::problem::{ApiError, ProblemKind};
use crate::query::{self, FromQuery, PAGE_MAX, Params, PathParam, Query};
use crate::state::ApiState;
use axum::Json;
use axum::extract::{Path as PathParams, State};
use axum::response::Response;
use muster_model::id::{CheckpointId, JobId};
use muster_model::view::{CheckpointView, Page};
use muster_store::{checkpoint, job, origin};

#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct CheckpointsParams {
    /// Items per page.
    #[param(minimum = 1, maximum = 500, default = 500, required = false)]
    pub limit: u32,
    /// Value of `continue` of the last page.
    #[param(rename = "continue", value_type = Option<String>)]
    pub after: Option<CheckpointId>,
}

impl FromQuery for CheckpointsParams {
    const NAMES: &'static [&'static str] = &["limit", "continue"];

    fn take(query: &mut Query) -> Self {
        let most = u64::from(PAGE_MAX);
        Self {
            limit: u32::try_from(query.number("limit", most, 1..=most)).unwrap_or(PAGE_MAX),
            after: query.after(),
        }
    }
}

/// List a job's checkpoints, newest first
///
/// Includes pruned checkpoints of the built-in engine. Each has its size, its measures and the
/// reasons why it is retained. Checkpoints of programs have `file_count` and `metrics`.
#[utoipa::path(
    get, path = "/jobs/{id}/checkpoints", operation_id = "listCheckpoints", tag = "jobs",
    params(("id" = JobId, Path, description = "The job"), CheckpointsParams),
    responses((status = 200, description = "A page of its checkpoints", body = Page<CheckpointView>)),
)]
pub async fn checkpoints(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<JobId>,
    Params(params): Params<CheckpointsParams>,
) -> Result<Json<Page<CheckpointView>>, ApiError> {
    let mut tx = app.begin(&caller).await?;
    let job = job::get(&mut tx, id)
        .await?
        .ok_or_else(|| ApiError::no_job(id))?;
    // The reasons of one checkpoint depend on the others. The tenant's limits bound their number.
    let rows = checkpoint::list(&mut tx, id).await?;
    let spared = origin::spared_of(&mut tx, id).await?;
    let views = wire::checkpoints(rows, &job.job.spec.checkpoint, &spared);
    let mut views = views.into_iter();
    if let Some(after) = params.after {
        // The cursor's row may have been removed since; then it was the oldest.
        views
            .by_ref()
            .take_while(|view| view.id != after)
            .for_each(drop);
    }
    let views: Vec<CheckpointView> = views.take(params.limit as usize + 1).collect();
    Ok(Json(query::page(
        views,
        params.limit,
        |view| view.id.to_string(),
        |view| view,
    )))
}

/// Download a checkpoint of a program
///
/// A tar file with its files. Their paths are relative to the job's checkpoint folder.
#[utoipa::path(
    get, path = "/jobs/{id}/checkpoints/{step}/archive", operation_id = "downloadCheckpointArchive", tag = "jobs",
    params(
        ("id" = JobId, Path, description = "The job"),
        ("step" = u64, Path, description = "Step of the checkpoint"),
    ),
    responses((status = 200, description = "The tar file", content_type = "application/octet-stream", body = Vec<u8>, headers(
        ("Muster-Sha256" = String, description = "Hex SHA-256 of the tar file, if the cluster keeps checkpoints in a bucket"),
    ))),
)]
pub async fn archive(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<JobId>,
    PathParams(path): PathParams<(String, String)>,
    Params(()): Params<()>,
) -> Result<Response, ApiError> {
    let (_, step) = path;
    let mut tx = app.begin(&caller).await?;
    job::get(&mut tx, id)
        .await?
        .ok_or_else(|| ApiError::no_job(id))?;
    let found = download::checkpoint_at(&mut tx, id, &step).await?;
    drop(tx);
    if !found.retained {
        return Err(download::no_checkpoint(id, &step));
    }
    let Some(content) = &found.program else {
        let detail = "a checkpoint of the built-in engine is downloaded by its files";
        return Err(ApiError::new(ProblemKind::NotFound, detail));
    };
    let files = app.files.as_ref().ok_or_else(download::no_files)?;
    let file = files.read_program_checkpoint(caller.tenant_id, &found, content);
    Ok(download::answer(
        file.await?,
        &format!("{id}-step-{step}.tar"),
    ))
}
