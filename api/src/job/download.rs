//! Downloads of checkpoint files and of the final model. Only the store names the folder; a request
//! selects one of its listed files.

use crate::auth::Caller;
use crate::files::FileDownload;
use crate::problem::{ApiError, ProblemKind};
use crate::query::{Params, PathParam};
use crate::state::ApiState;
use axum::extract::{Path as PathParams, State};
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE, ETAG};
use axum::http::{HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use muster_model::checkpoint::Checkpoint;
use muster_model::id::JobId;
use muster_store::{PgConnection, checkpoint, job};
use std::path::{Component, Path};

const SHA256: HeaderName = HeaderName::from_static("muster-sha256");

/// Download a file of a checkpoint
#[utoipa::path(
    get, path = "/jobs/{id}/checkpoints/{step}/files/{name}", operation_id = "downloadCheckpointFile", tag = "jobs",
    params(
        ("id" = JobId, Path, description = "The job"),
        ("step" = u64, Path, description = "Step of the checkpoint"),
        ("name" = String, Path, description = "One of the checkpoint's `files`"),
    ),
    responses((status = 200, description = "The file", content_type = "application/octet-stream", body = Vec<u8>, headers(
        ("Muster-Sha256" = String, description = "Hex SHA-256 of the file, when its manifest states it"),
    ))),
)]
pub async fn checkpoint_file(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<JobId>,
    PathParams(path): PathParams<(String, String, String)>,
    Params(()): Params<()>,
) -> Result<Response, ApiError> {
    let (_, step, name) = path;
    let mut tx = app.begin(&caller).await?;
    let found = checkpoint_at(&mut tx, id, &step).await?;
    drop(tx);
    // A node reported the list: a name must not lead out of the folder.
    let mut parts = Path::new(&name).components();
    let plain = matches!(
        (parts.next(), parts.next()),
        (Some(Component::Normal(_)), None)
    );
    if !plain || !found.written.files.contains(&name) {
        let detail = format!(
            "this checkpoint has the files {}; not {name:?}",
            found.written.files.join(", ")
        );
        return Err(ApiError::new(ProblemKind::NotFound, detail));
    }
    if !found.retained {
        return Err(ApiError::not_found(format!(
            "file of the checkpoint at step {step} any more: it was pruned"
        )));
    }
    let file = (found.written.path.as_str(), name.as_str());
    let download_as = format!("{id}-step-{step}-{name}");
    send(&app, &caller, id, file, &download_as).await
}

/// Download a job's final model
///
/// A safetensors file of named tensors. Only a job that has succeeded has one; checkpoints of other
/// jobs can be downloaded.
#[utoipa::path(
    get, path = "/jobs/{id}/model", operation_id = "downloadModel", tag = "jobs",
    params(("id" = JobId, Path, description = "The job")),
    responses((status = 200, description = "The file", content_type = "application/octet-stream", body = Vec<u8>, headers(
        ("Muster-Sha256" = String, description = "Hex SHA-256 of the file, when its manifest states it"),
    ))),
)]
pub async fn model(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<JobId>,
    Params(()): Params<()>,
) -> Result<Response, ApiError> {
    let mut tx = app.begin(&caller).await?;
    let row = job::get(&mut tx, id)
        .await?
        .ok_or_else(|| ApiError::no_job(id))?;
    drop(tx);
    let Some(path) = row.model_path else {
        let phase = row.job.state.phase().as_str();
        let detail = match &row.job.spec.command {
            Some(_) => "the job runs a command, whose files are its own: they are where the command wrote them, in the \
                        folder that it was told as MUSTER_CHECKPOINT_DIR or elsewhere"
                .to_owned(),
            None => format!("the job is {phase}; its model is there once it has succeeded"),
        };
        return Err(ApiError::new(ProblemKind::WrongPhase, detail));
    };
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", &path));
    let download_as = format!("{}-{name}", row.job.spec.name);
    send(&app, &caller, id, (folder, name), &download_as).await
}

/// Returns the checkpoint of a job at a step of the path, also a pruned one.
pub(super) async fn checkpoint_at(
    conn: &mut PgConnection,
    id: JobId,
    step: &str,
) -> Result<Checkpoint, ApiError> {
    let wanted = step.parse::<i64>().ok();
    let wanted = wanted.and_then(|step| u64::try_from(step).ok());
    let wanted = wanted.ok_or_else(|| no_checkpoint(id, step))?;
    let found = checkpoint::get(conn, id, wanted).await?;
    found.ok_or_else(|| no_checkpoint(id, step))
}

pub(super) fn no_checkpoint(id: JobId, step: &str) -> ApiError {
    ApiError::not_found(format!("checkpoint of job {id} at step {step}"))
}

/// Returns the error of a daemon that cannot read files.
pub(super) fn no_files() -> ApiError {
    let detail = "this daemon was started without checkpoint_root, so it has no files to give";
    ApiError::new(ProblemKind::NotFound, detail)
}

async fn send(
    app: &ApiState,
    caller: &Caller,
    job: JobId,
    (folder, name): (&str, &str),
    download_as: &str,
) -> Result<Response, ApiError> {
    let files = app.files.as_ref().ok_or_else(no_files)?;
    let found = files.read(caller.tenant_id, job, folder, name).await?;
    Ok(answer(found, download_as))
}

/// Answers with a file, under the name `download_as`.
pub fn answer(found: FileDownload, download_as: &str) -> Response {
    let mut response = found.body.into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_LENGTH, HeaderValue::from(found.bytes));
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    headers.insert(
        "x-content-type-options",
        HeaderValue::from_static("nosniff"),
    );
    if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename=\"{download_as}\"")) {
        headers.insert(CONTENT_DISPOSITION, value);
    }
    if let Some(sha256) = found.sha256 {
        if let Ok(etag) = HeaderValue::from_str(&format!("\"{sha256}\"")) {
            headers.insert(ETAG, etag);
        }
        if let Ok(value) = HeaderValue::from_str(&sha256) {
            headers.insert(SHA256, value);
        }
    }
    response
}
