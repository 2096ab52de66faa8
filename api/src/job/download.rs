//! Files of checkpoints, and the final model. Which folder it is says the store alone; a request only names a file of its list.

use crate::auth::Caller;
use crate::problem::{Kind, Refusal};
use crate::query::{Named, Params};
use crate::state::App;
use axum::body::Body;
use axum::extract::{Path as PathParams, State};
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE, ETAG};
use axum::http::{HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use muster_model::id::{JobId, TenantId};
use muster_store::{checkpoint, job};
use serde_json::Value;
use std::path::{Component, Path, PathBuf};
use tokio::fs::File;
use tokio_util::io::ReaderStream;

const SHA256: HeaderName = HeaderName::from_static("muster-sha256");
/// Read from disk at once.
const BUFFER: usize = 256 << 10;

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
    State(app): State<App>,
    caller: Caller,
    Named(id): Named<JobId>,
    PathParams(path): PathParams<(String, String, String)>,
    Params(()): Params<()>,
) -> Result<Response, Refusal> {
    let (_, step, name) = path;
    let missing = || Refusal::not_found(format!("checkpoint of job {id} at step {step}"));
    let wanted: i64 = step.parse().map_err(|_| missing())?;
    let mut tx = app.begin(&caller).await?;
    let found = checkpoint::get(&mut tx, id, u64::try_from(wanted).map_err(|_| missing())?)
        .await?
        .ok_or_else(missing)?;
    drop(tx);
    // The list was reported by a node: a name must not lead out of the folder.
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
        return Err(Refusal::new(Kind::NotFound, detail));
    }
    if !found.retained {
        return Err(Refusal::not_found(format!(
            "file of the checkpoint at step {step} any more: it was pruned"
        )));
    }
    let folder = folder(&app, caller.tenant_id, id, &found.written.path).await?;
    send(&folder, &name, &format!("{id}-step-{step}-{name}")).await
}

/// Download a job's final model
///
/// A safetensors file of named tensors. Jobs that have not succeeded have none; their checkpoints can be downloaded.
#[utoipa::path(
    get, path = "/jobs/{id}/model", operation_id = "downloadModel", tag = "jobs",
    params(("id" = JobId, Path, description = "The job")),
    responses((status = 200, description = "The file", content_type = "application/octet-stream", body = Vec<u8>, headers(
        ("Muster-Sha256" = String, description = "Hex SHA-256 of the file, when its manifest states it"),
    ))),
)]
pub async fn model(
    State(app): State<App>,
    caller: Caller,
    Named(id): Named<JobId>,
    Params(()): Params<()>,
) -> Result<Response, Refusal> {
    let mut tx = app.begin(&caller).await?;
    let row = job::get(&mut tx, id)
        .await?
        .ok_or_else(|| Refusal::not_found(format!("job {id}")))?;
    drop(tx);
    let Some(path) = row.model_path else {
        let phase = row.job.state.phase().as_str();
        let detail = format!("the job is {phase}; its model is there once it has succeeded");
        return Err(Refusal::new(Kind::WrongPhase, detail));
    };
    let Some((parent, name)) = path.rsplit_once('/') else {
        return Err(gone(&path));
    };
    let folder = folder(&app, caller.tenant_id, id, parent).await?;
    send(&folder, name, &format!("{}-{name}", row.job.spec.name)).await
}

/// The folder on disk. The path was reported by a node: it must lie in the job's own folder, and no link may lead out of it.
async fn folder(
    app: &App,
    tenant: TenantId,
    id: JobId,
    relative: &str,
) -> Result<PathBuf, Refusal> {
    let Some(root) = &app.checkpoint_root else {
        let detail = "this daemon was started without checkpoint_root, so it has no files to give";
        return Err(Refusal::new(Kind::NotFound, detail));
    };
    let path = Path::new(relative);
    let own = Path::new(&tenant.to_string()).join(id.to_string());
    let plain = path
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    if !plain || !path.starts_with(&own) {
        tracing::error!(job.id = %id, path = relative, "a node reported a path outside of its job's folder");
        return Err(gone(relative));
    }
    let home = tokio::fs::canonicalize(root.join(own))
        .await
        .map_err(|_| gone(relative))?;
    let folder = tokio::fs::canonicalize(root.join(path))
        .await
        .map_err(|_| gone(relative))?;
    if folder.starts_with(home) {
        Ok(folder)
    } else {
        Err(gone(relative))
    }
}

async fn send(folder: &Path, name: &str, download_as: &str) -> Result<Response, Refusal> {
    let path = folder.join(name);
    let plain = tokio::fs::symlink_metadata(&path)
        .await
        .is_ok_and(|found| found.is_file());
    if !plain {
        return Err(gone(name));
    }
    let file = File::open(&path).await.map_err(|_| gone(name))?;
    let length = file.metadata().await.map_err(|_| gone(name))?.len();
    let mut response = Body::from_stream(ReaderStream::with_capacity(file, BUFFER)).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
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
    if let Some(sha256) = stated_sha256(folder, name).await {
        if let Ok(etag) = HeaderValue::from_str(&format!("\"{sha256}\"")) {
            headers.insert(ETAG, etag);
        }
        if let Ok(value) = HeaderValue::from_str(&sha256) {
            headers.insert(SHA256, value);
        }
    }
    Ok(response)
}

/// What the manifest beside the file says of it.
async fn stated_sha256(folder: &Path, name: &str) -> Option<String> {
    let text = tokio::fs::read(folder.join("manifest.json")).await.ok()?;
    let manifest: Value = serde_json::from_slice(&text).ok()?;
    let sha256 = manifest.get("files")?.get(name)?.get("sha256")?.as_str()?;
    (sha256.len() == 64 && sha256.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .then(|| sha256.to_owned())
}

fn gone(what: &str) -> Refusal {
    Refusal::not_found(format!(
        "file {what:?} where this daemon looks for checkpoints"
    ))
}
