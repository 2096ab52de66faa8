//! `GET /jobs/{id}/artifacts` and their content.

use super::download;
use crate::auth::Caller;
use crate::problem::ApiError;
use crate::query::{self, FromQuery, PAGE_MAX, Params, PathParam, Query};
use crate::state::ApiState;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use futures::{StreamExt as _, stream};
use muster_model::artifact::{MAX_PATH_BYTES, PATH_RULE, is_artifact_path};
use muster_model::id::JobId;
use muster_model::view::{ArtifactView, Page};
use muster_store::artifact::{self, ArtifactRow};
use muster_store::job;

/// Policy of answers that a browser shows: no script, no request, an origin of its own.
const SANDBOX: &str =
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:";

/// Most bytes of the beginning of an artifact.
const MAX_FIRST_BYTES: u64 = 1 << 20;

#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ArtifactsParams {
    /// Only artifacts whose path begins with this text, such as `plots/`.
    #[param(required = false, max_length = 500)]
    pub prefix: String,
    /// Items per page.
    #[param(minimum = 1, maximum = 500, default = 500, required = false)]
    pub limit: u32,
    /// Value of `continue` of the last page.
    #[param(rename = "continue")]
    pub after: Option<String>,
}

impl FromQuery for ArtifactsParams {
    const NAMES: &'static [&'static str] = &["prefix", "limit", "continue"];

    fn take(query: &mut Query) -> Self {
        let most = u64::from(PAGE_MAX);
        Self {
            prefix: read_prefix(query),
            limit: u32::try_from(query.number("limit", most, 1..=most)).unwrap_or(PAGE_MAX),
            after: query.after(),
        }
    }
}

/// Reads the parameter `prefix`.
pub(super) fn read_prefix(query: &mut Query) -> String {
    let prefix: Option<String> = query.one("prefix", "a text");
    let prefix = prefix.unwrap_or_default();
    if prefix.len() > MAX_PATH_BYTES {
        query.wrong(
            "prefix",
            &format!("{} bytes", prefix.len()),
            "at most 500 bytes",
        );
    }
    prefix
}

#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ArtifactContentParams {
    /// Path of the artifact.
    #[param(min_length = 1, max_length = 500)]
    pub path: String,
    /// Only this number of bytes from the beginning.
    #[param(minimum = 1, maximum = 1048576)]
    pub first_bytes: Option<u64>,
}

impl FromQuery for ArtifactContentParams {
    const NAMES: &'static [&'static str] = &["path", "first_bytes"];

    fn take(query: &mut Query) -> Self {
        let path: Option<String> = query.one("path", PATH_RULE);
        let path = path.unwrap_or_default();
        if !is_artifact_path(&path) {
            query.wrong("path", &format!("{path:?}"), PATH_RULE);
        }
        let expected = format!("a whole number from 1 to {MAX_FIRST_BYTES}");
        let first_bytes = query.one::<u64>("first_bytes", &expected);
        if let Some(bytes) = first_bytes.filter(|bytes| !(1..=MAX_FIRST_BYTES).contains(bytes)) {
            query.wrong("first_bytes", &bytes.to_string(), &expected);
        }
        Self { path, first_bytes }
    }
}

/// List a job's artifacts
///
/// Files that its program has written to `MUSTER_OUTPUT_DIR` or has logged with MLflow, by path.
/// They are deleted with the job.
#[utoipa::path(
    get, path = "/jobs/{id}/artifacts", operation_id = "listArtifacts", tag = "jobs",
    params(("id" = JobId, Path, description = "The job"), ArtifactsParams),
    responses((status = 200, description = "A page of its artifacts", body = Page<ArtifactView>)),
)]
pub async fn artifacts(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<JobId>,
    Params(params): Params<ArtifactsParams>,
) -> Result<Json<Page<ArtifactView>>, ApiError> {
    let mut tx = app.begin(&caller).await?;
    job::get(&mut tx, id)
        .await?
        .ok_or_else(|| ApiError::no_job(id))?;
    let after = params.after.unwrap_or_default();
    let from = (params.prefix.as_str(), after.as_str());
    let rows = artifact::list(&mut tx, id, from, params.limit).await?;
    Ok(Json(query::shown(rows, |row| row.path.clone(), shown)))
}

fn shown(row: ArtifactRow) -> ArtifactView {
    ArtifactView {
        path: row.path,
        bytes: row.content.bytes,
        sha256: row.content.sha256,
        content_type: row.content.content_type,
        role: row.role,
        revision: row.revision,
        stored_at: row.stored_at,
    }
}

/// Download an artifact
#[utoipa::path(
    get, path = "/jobs/{id}/artifacts/content", operation_id = "downloadArtifact", tag = "jobs",
    params(("id" = JobId, Path, description = "The job"), ArtifactContentParams),
    responses((status = 200, description = "The file", content_type = "application/octet-stream", body = Vec<u8>, headers(
        ("Muster-Sha256" = String, description = "Hex SHA-256 of the whole file; absent with `first_bytes`"),
    ))),
)]
pub async fn content(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<JobId>,
    Params(params): Params<ArtifactContentParams>,
) -> Result<Response, ApiError> {
    let mut tx = app.begin(&caller).await?;
    let found = match job::get(&mut tx, id).await? {
        Some(_) => artifact::get(&mut tx, id, &params.path).await?,
        None => return Err(ApiError::no_job(id)),
    };
    drop(tx);
    let row = found
        .ok_or_else(|| ApiError::not_found(format!("artifact {:?} of job {id}", params.path)))?;
    let files = app.files.as_ref().ok_or_else(download::no_files)?;
    let mut file = files.read_artifact(caller.tenant_id, id, &row).await?;
    if let Some(most) = params.first_bytes.filter(|most| *most < file.bytes) {
        file.body = first(file.body, most);
        (file.bytes, file.sha256) = (most, None);
    }
    let mut response = download::answer(file, &plain_name(&params.path));
    protect(response.headers_mut());
    Ok(response)
}

/// Adds headers against scripts in a program's files. The page of this origin has a token.
pub(super) fn protect(headers: &mut HeaderMap) {
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(SANDBOX));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    headers.insert(
        "x-content-type-options",
        HeaderValue::from_static("nosniff"),
    );
}

/// Returns the last name of a path in characters that a header may contain.
pub(super) fn plain_name(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    let is_plain =
        |character: char| character.is_ascii_alphanumeric() || ".-_ ".contains(character);
    name.chars()
        .map(|character| if is_plain(character) { character } else { '_' })
        .collect()
}

/// Returns the first `most` bytes of a body.
fn first(body: Body, most: u64) -> Body {
    let pieces = body.into_data_stream();
    let cut = stream::unfold((pieces, most), |(mut pieces, left)| async move {
        if left == 0 {
            return None;
        }
        let piece = pieces.next().await?;
        let piece = piece.map(|piece| {
            let length = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            piece.slice(..length)
        });
        let taken = piece.as_ref().map_or(left, |piece| piece.len() as u64);
        Some((piece, (pieces, left - taken)))
    });
    Body::from_stream(cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_for_a_header_has_no_special_characters() {
        assert_eq!(plain_name("plots/loss 1.png"), "loss 1.png");
        assert_eq!(plain_name("a\"; x=\"é.html"), "a__ x___.html");
    }

    #[tokio::test]
    async fn beginning_of_a_body_ends_within_a_piece() {
        let pieces = ["abc", "def", "ghi"].map(Ok::<_, std::io::Error>);
        let body = Body::from_stream(stream::iter(pieces));
        let read = axum::body::to_bytes(first(body, 5), 100).await;
        assert_eq!(read.expect("read").as_ref(), b"abcde");
    }
}
