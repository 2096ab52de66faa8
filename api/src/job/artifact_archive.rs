//! `GET /jobs/{id}/artifacts/archive`: all artifacts as one tar file, written while it is sent.
//! Artifacts whose content is lost are left out and listed in its last entry, `MISSING.txt`.

use super::artifacts::{plain_name, protect, read_prefix};
use super::download;
use crate::auth::Caller;
use crate::files::Files;
use crate::problem::{ApiError, ProblemKind};
use crate::query::{FromQuery, PAGE_MAX, Params, PathParam, Query};
use crate::state::ApiState;
use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use futures::{StreamExt as _, stream};
use muster_archive::{ArchiveDigest, TAR_END, tar_head, tar_padding};
use muster_model::artifact::is_artifact_path;
use muster_model::id::JobId;
use muster_store::artifact::{self, ArtifactRow};
use muster_store::job;
use muster_store::page::RowPage;
use std::collections::VecDeque;
use std::io;

/// Entry that lists the artifacts whose content is lost.
const MISSING: &str = "MISSING.txt";
/// Maximum number of lost contents. The archive is aborted above it.
const MAX_MISSING: usize = 10_000;

#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ArtifactArchiveParams {
    /// Only artifacts whose path begins with this text, such as `plots/`.
    #[param(required = false, max_length = 500)]
    pub prefix: String,
}

impl FromQuery for ArtifactArchiveParams {
    const NAMES: &'static [&'static str] = &["prefix"];

    fn take(query: &mut Query) -> Self {
        Self {
            prefix: read_prefix(query),
        }
    }
}

/// Download all artifacts of a job
///
/// A tar file with the artifacts by path. The connection is aborted if one of them cannot be read:
/// a complete file ends with two blocks of zeros.
#[utoipa::path(
    get, path = "/jobs/{id}/artifacts/archive", operation_id = "downloadArtifacts", tag = "jobs",
    params(("id" = JobId, Path, description = "The job"), ArtifactArchiveParams),
    responses((status = 200, description = "The file", content_type = "application/x-tar", body = Vec<u8>)),
)]
pub async fn archive(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<JobId>,
    Params(params): Params<ArtifactArchiveParams>,
) -> Result<Response, ApiError> {
    let mut tx = app.begin(&caller).await?;
    let row = job::get(&mut tx, id).await?;
    let row = row.ok_or_else(|| ApiError::no_job(id))?;
    let first = artifact::list(&mut tx, id, (&params.prefix, ""), PAGE_MAX).await?;
    drop(tx);
    let files = app.files.clone().ok_or_else(download::no_files)?;
    if first.is_empty() {
        let beginning = match params.prefix.as_str() {
            "" => String::new(),
            prefix => format!(" that begins with {prefix:?}"),
        };
        let what = format!("artifact{beginning} of job {id}");
        return Err(ApiError::not_found(what));
    }
    let mut archive = TarFile {
        app,
        files,
        caller,
        id,
        prefix: params.prefix,
        rows: VecDeque::new(),
        after: None,
        missing: Vec::new(),
        step: TarStep::Between,
    };
    archive.add(first);
    let body = Body::from_stream(stream::try_unfold(archive, TarFile::more));
    let mut response = body.into_response();
    let headers = response.headers_mut();
    protect(headers);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-tar"));
    let name = plain_name(&row.job.spec.name);
    let disposition = format!("attachment; filename=\"{name}-artifacts.tar\"");
    if let Ok(value) = HeaderValue::from_str(&disposition) {
        headers.insert(CONTENT_DISPOSITION, value);
    }
    Ok(response)
}

/// A tar file during its transfer. It holds the rows of one page and one piece of a content, and
/// no transaction while the client reads.
struct TarFile {
    app: ApiState,
    files: Files,
    caller: Caller,
    id: JobId,
    prefix: String,
    rows: VecDeque<ArtifactRow>,
    /// Path after which the next page begins; `None` after the last page.
    after: Option<String>,
    /// Paths of the artifacts whose content is lost.
    missing: Vec<String>,
    step: TarStep,
}

enum TarStep {
    Between,
    Content(Box<Content>),
    Done,
}

struct Content {
    row: ArtifactRow,
    pieces: BodyDataStream,
    read: u64,
    digest: ArchiveDigest,
}

impl TarFile {
    fn add(&mut self, page: RowPage<ArtifactRow>) {
        let last = page.rows.last().map(|row| row.path.clone());
        self.after = last.filter(|_| page.more);
        self.rows.extend(page.rows);
    }

    /// Returns the next piece and the remaining state.
    async fn more(mut self) -> io::Result<Option<(Bytes, Self)>> {
        let result = match std::mem::replace(&mut self.step, TarStep::Between) {
            TarStep::Between => self.next_file().await,
            TarStep::Content(content) => self.next_piece(*content).await,
            TarStep::Done => return Ok(None),
        };
        match result {
            Ok(piece) => Ok(Some((piece, self))),
            Err(error) => {
                tracing::warn!(job.id = %self.id, %error, "an archive of artifacts is aborted");
                Err(error)
            }
        }
    }

    /// Returns the head of the next file, or the end of the archive.
    async fn next_file(&mut self) -> io::Result<Bytes> {
        while let Some(row) = self.next_row().await? {
            let Some((row, pieces)) = self.open(row).await? else {
                continue;
            };
            if !is_artifact_path(&row.path) {
                let error = format!("{:?} is no path of an artifact", row.path);
                return Err(io::Error::other(error));
            }
            let stored = row.stored_at.unix_timestamp();
            let stored = u64::try_from(stored).unwrap_or(0);
            let head = tar_head(&row.path, row.content.bytes, 0o644, stored)?;
            self.step = TarStep::Content(Box::new(Content {
                row,
                pieces,
                read: 0,
                digest: ArchiveDigest::default(),
            }));
            return Ok(head.into());
        }
        self.step = TarStep::Done;
        self.end()
    }

    /// Returns the end of the archive, behind the list of lost contents.
    fn end(&self) -> io::Result<Bytes> {
        if self.missing.is_empty() {
            return Ok(Bytes::from_static(&TAR_END));
        }
        let text = format!(
            "The content of these artifacts is lost, so they are not in this archive:\n{}\n",
            self.missing.join("\n")
        );
        let bytes = text.len() as u64;
        let mut end = tar_head(MISSING, bytes, 0o644, 0)?;
        end.extend(text.as_bytes());
        end.extend(vec![0; tar_padding(bytes)]);
        end.extend(TAR_END);
        Ok(end.into())
    }

    async fn next_row(&mut self) -> io::Result<Option<ArtifactRow>> {
        if self.rows.is_empty()
            && let Some(after) = self.after.take()
        {
            let tx = self.app.begin(&self.caller).await;
            let mut tx = tx.map_err(io::Error::other)?;
            let from = (self.prefix.as_str(), after.as_str());
            let page = artifact::list(&mut tx, self.id, from, PAGE_MAX).await;
            self.add(page.map_err(io::Error::other)?);
        }
        Ok(self.rows.pop_front())
    }

    /// Opens a content. The program may have replaced or removed the artifact since it was listed.
    /// Records a content that is lost.
    async fn open(
        &mut self,
        row: ArtifactRow,
    ) -> io::Result<Option<(ArtifactRow, BodyDataStream)>> {
        let (files, tenant) = (&self.files, self.caller.tenant_id);
        match files.read_artifact(tenant, self.id, &row).await {
            Ok(found) => return Ok(Some((row, found.body.into_data_stream()))),
            Err(error) if error.kind() != ProblemKind::NotFound => return Err(failed(error)),
            Err(_) => {}
        }
        let tx = self.app.begin(&self.caller).await;
        let mut tx = tx.map_err(io::Error::other)?;
        let newer = artifact::get(&mut tx, self.id, &row.path).await;
        drop(tx);
        let Some(newer) = newer.map_err(io::Error::other)? else {
            return Ok(None);
        };
        let found = files.read_artifact(tenant, self.id, &newer).await;
        let has_room = self.missing.len() < MAX_MISSING;
        match found {
            Ok(found) => Ok(Some((newer, found.body.into_data_stream()))),
            Err(error) if error.kind() == ProblemKind::NotFound && has_room => {
                self.missing.push(newer.path);
                Ok(None)
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Returns the next piece of a content, or what follows the content.
    async fn next_piece(&mut self, mut content: Content) -> io::Result<Bytes> {
        let bytes = content.row.content.bytes;
        if let Some(piece) = content.pieces.next().await {
            let piece = piece.map_err(io::Error::other)?;
            content.read += piece.len() as u64;
            if content.read > bytes {
                return Err(io::Error::other("an artifact has grown"));
            }
            content.digest.update(&piece);
            self.step = TarStep::Content(Box::new(content));
            return Ok(piece);
        }
        if content.read < bytes || content.digest.hex() != content.row.content.sha256 {
            let path = content.row.path;
            let error = format!("artifact {path:?} has another content than when it was stored");
            return Err(io::Error::other(error));
        }
        Ok(vec![0; tar_padding(bytes)].into())
    }
}

fn failed(error: ApiError) -> io::Error {
    io::Error::other(format!("{error:?}"))
}
