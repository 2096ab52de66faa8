//! `GET /code/{sha256}` and `GET /code/{sha256}/archive`.

use super::{files, named};
use crate::auth::Caller;
use crate::job::download;
use crate::problem::ApiError;
use crate::query::Params;
use crate::state::ApiState;
use axum::Json;
use axum::extract::{Path, State};
use axum::response::Response;
use muster_model::view::CodeView;
use muster_store::code::{self, CodeArchive};

/// Show a code archive
///
/// 404 if the tenant has no archive of this name; a client then uploads it.
#[utoipa::path(
    get, path = "/code/{sha256}", operation_id = "getCode", tag = "jobs",
    params(("sha256" = String, Path, description = "SHA-256 of the archive")),
    responses((status = 200, description = "The archive is stored", body = CodeView)),
)]
pub async fn get(
    State(app): State<ApiState>,
    caller: Caller,
    Path(sha256): Path<String>,
    Params(()): Params<()>,
) -> Result<Json<CodeView>, ApiError> {
    let found = stored(&app, &caller, &sha256).await?;
    // Its file may have been lost or cut off; then it is to be uploaded again.
    let file = files(&app)?.read_code(caller.tenant_id, &sha256).await?;
    if file.bytes != found.bytes {
        return Err(missing(&sha256));
    }
    Ok(Json(shown(found)))
}

/// Download a code archive
///
/// A zstd-compressed tar file.
#[utoipa::path(
    get, path = "/code/{sha256}/archive", operation_id = "downloadCode", tag = "jobs",
    params(("sha256" = String, Path, description = "SHA-256 of the archive")),
    responses((status = 200, description = "The file", content_type = "application/octet-stream", body = Vec<u8>, headers(
        ("Muster-Sha256" = String, description = "Hex SHA-256 of the file"),
    ))),
)]
pub async fn archive(
    State(app): State<ApiState>,
    caller: Caller,
    Path(sha256): Path<String>,
    Params(()): Params<()>,
) -> Result<Response, ApiError> {
    stored(&app, &caller, &sha256).await?;
    let file = files(&app)?.read_code(caller.tenant_id, &sha256).await?;
    let short = &sha256[..12];
    Ok(download::answer(file, &format!("code-{short}.tar.zst")))
}

async fn stored(app: &ApiState, caller: &Caller, sha256: &str) -> Result<CodeArchive, ApiError> {
    named(sha256)?;
    let mut tx = app.begin(caller).await?;
    let found = code::get(&mut tx, sha256).await?;
    found.ok_or_else(|| missing(sha256))
}

fn missing(sha256: &str) -> ApiError {
    ApiError::not_found(format!("code archive {sha256} of this tenant; upload it"))
}

pub(super) fn shown(archive: CodeArchive) -> CodeView {
    CodeView {
        sha256: archive.sha256,
        bytes: archive.bytes,
        created_at: archive.created_at,
    }
}
