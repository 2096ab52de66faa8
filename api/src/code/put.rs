//! `PUT /code/{sha256}`.

use super::get::shown;
use super::{files, named, remove_unused};
use crate::auth::Caller;
use crate::clock;
use crate::files::too_large;
use crate::problem::{ApiError, ProblemKind};
use crate::query::Params;
use crate::state::ApiState;
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_LENGTH;
use muster_connections::PermitError;
use muster_model::view::CodeView;
use muster_store::StoreError;
use muster_store::code::{self, CodeArchive};

/// Route of uploads, which may take longer than other requests.
pub const ROUTE: &str = "/api/v1/code/{sha256}";

/// Upload a code archive
///
/// The body is a zstd-compressed tar file of files, folders and symbolic links, and the path names
/// its SHA-256. Documents refer to it in `command.code.archive`. An upload of a stored archive
/// replaces it. Archives that no job or study names are removed a week after their last use.
#[utoipa::path(
    put, path = "/code/{sha256}", operation_id = "putCode", tag = "jobs",
    params(("sha256" = String, Path, description = "SHA-256 of the body as 64 hexadecimal digits")),
    request_body(content = Vec<u8>, content_type = "application/octet-stream", description = "The archive, at most 128 MiB by default"),
    responses((status = 200, description = "Stored", body = CodeView)),
)]
#[tracing::instrument(name = "api.code.put", skip_all)]
pub async fn put(
    State(app): State<ApiState>,
    caller: Caller,
    Path(sha256): Path<String>,
    Params(()): Params<()>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<CodeView>, ApiError> {
    named(&sha256)?;
    let files = files(&app)?;
    let most_bytes = app.limits.code_archive_bytes;
    let announced = headers.get(CONTENT_LENGTH);
    let announced = announced.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|bytes| bytes > most_bytes) {
        return Err(too_large(most_bytes));
    }
    let _permit = app.uploads.take(Some(caller.home())).map_err(busy)?;
    let received = files
        .receive_code(caller.tenant_id, body, (announced, most_bytes))
        .await?;
    if received.sha256 != sha256 {
        let detail = format!(
            "the body has the SHA-256 {}; the path names {sha256}",
            received.sha256
        );
        return Err(ApiError::new(ProblemKind::InvalidBody, detail));
    }
    let archive = CodeArchive {
        sha256,
        bytes: received.bytes,
        created_at: clock::now(),
    };
    // Refused before anything is written.
    let mut tx = app.begin(&caller).await?;
    code::must_fit(&mut tx, caller.tenant_id, &archive).await?;
    drop(tx);
    let written = files.write_code(caller.tenant_id, received).await?;
    let mut tx = app.begin(&caller).await?;
    code::hold(&mut tx, caller.tenant_id).await?;
    code::add(&mut tx, caller.tenant_id, &archive).await?;
    files.keep_code(caller.tenant_id, written).await?;
    tx.commit().await.map_err(StoreError::from)?;
    tokio::spawn(remove_unused::remove(app.clone(), caller));
    Ok(Json(shown(archive)))
}

fn busy(full: PermitError) -> ApiError {
    let (most, whose) = match full {
        PermitError::All(most) => (most, ""),
        PermitError::OfKey(most) => (most, " of your tenant"),
    };
    let detail = format!("{most} uploads{whose} are under way already; try again later");
    ApiError::new(ProblemKind::TooManyRequests, detail).retry_after(2)
}
