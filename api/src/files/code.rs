//! Code archives in the checkpoint store: `code/<tenant>/<sha256>.tar.zst`.
//!
//! A process task can write the store's folder, so no path is trusted, and nodes check the digest
//! of what they read.

use super::{FileDownload, FileSource, Files, gone, not_answered, stalled};
use crate::clock;
use crate::problem::{ApiError, ProblemKind};
use axum::body::{Body, Bytes};
use futures::StreamExt as _;
use muster_archive::ArchiveDigest;
use muster_model::id::TenantId;
use muster_model::spec::{code_folder, code_object};
use muster_opener::FolderHandle;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Maximum time between two pieces of an upload.
const SILENCE: Duration = Duration::from_secs(30);

/// Age at which the file of an upload that never ended is removed.
const ABANDONED: Duration = Duration::from_hours(24);

/// Age below which an object without a row stays: its upload may be about to insert the row.
const RECENT: Duration = Duration::from_hours(1);

/// Maximum number of archives that one pass removes. It holds a transaction open.
const MAX_REMOVED: usize = 50;

/// Prefix of files during an upload.
const UPLOAD: &str = ".upload-";

/// Mode of an archive. Executors may run as another user than this daemon.
const READABLE: u32 = 0o644;

/// A received archive.
pub struct ReceivedCode {
    pub sha256: String,
    pub bytes: u64,
    content: ReceivedContent,
}

enum ReceivedContent {
    File(UploadFile),
    Bytes(Vec<u8>),
}

/// A received archive that is durable and has no row yet.
pub struct WrittenCode {
    sha256: String,
    bytes: u64,
    /// `None` for an object, which has its name already.
    file: Option<UploadFile>,
}

/// A file with a temporary name in the folder of its tenant. Dropping it removes the file, unless
/// it was renamed.
struct UploadFile {
    folder: FolderHandle,
    name: String,
    file: File,
}

impl Drop for UploadFile {
    fn drop(&mut self) {
        let _ = self.folder.remove(OsStr::new(&self.name));
    }
}

impl Files {
    /// Reads the body of an upload, for a folder into a file with a temporary name. `announced` is
    /// its length according to the client.
    ///
    /// # Errors
    /// [`ProblemKind::BodyTooLarge`] above `most_bytes`; [`ProblemKind::MalformedBody`] if the body
    /// ends early or stalls; [`ProblemKind::Unavailable`] if the store cannot be written.
    pub async fn receive_code(
        &self,
        tenant: TenantId,
        body: Body,
        (announced, most_bytes): (Option<u64>, u64),
    ) -> Result<ReceivedCode, ApiError> {
        let mut content = match &self.place {
            FileSource::Folder(root) => {
                let root = root.clone();
                let begun = self.reads.run(move || UploadFile::begin(&root, tenant));
                let begun = begun.await.map_err(|_| stalled())?;
                ReceivedContent::File(begun.map_err(|error| unwritten(&error))?)
            }
            FileSource::Bucket(_) => {
                // A vector that grows would briefly need twice as much.
                let bytes = announced.unwrap_or(0).min(most_bytes);
                let bytes = usize::try_from(bytes).expect("an archive fits the memory");
                ReceivedContent::Bytes(Vec::with_capacity(bytes))
            }
        };
        let (mut digest, mut bytes) = (ArchiveDigest::default(), 0);
        let mut pieces = body.into_data_stream();
        loop {
            let piece = tokio::time::timeout(SILENCE, pieces.next()).await;
            let Some(piece) = piece.map_err(|_| cut_off())? else {
                break;
            };
            let piece = piece.map_err(|_| cut_off())?;
            bytes += piece.len() as u64;
            if bytes > most_bytes {
                return Err(too_large(most_bytes));
            }
            digest.update(&piece);
            content = self.append(content, piece).await?;
        }
        Ok(ReceivedCode {
            sha256: digest.hex(),
            bytes,
            content,
        })
    }

    async fn append(
        &self,
        content: ReceivedContent,
        piece: Bytes,
    ) -> Result<ReceivedContent, ApiError> {
        match content {
            ReceivedContent::Bytes(mut bytes) => {
                bytes.extend_from_slice(&piece);
                Ok(ReceivedContent::Bytes(bytes))
            }
            ReceivedContent::File(mut upload) => {
                let write = self.reads.run(move || {
                    upload.file.write_all(&piece)?;
                    Ok(upload)
                });
                let written = write.await.map_err(|_| stalled())?;
                let written = written.map_err(|error| unwritten(&error))?;
                Ok(ReceivedContent::File(written))
            }
        }
    }

    /// Makes a received archive durable. This may take long, so the caller has no transaction open.
    ///
    /// # Errors
    /// [`ProblemKind::Unavailable`] if the store cannot be written.
    pub async fn write_code(
        &self,
        tenant: TenantId,
        received: ReceivedCode,
    ) -> Result<WrittenCode, ApiError> {
        let file = match (&self.place, received.content) {
            (FileSource::Bucket(bucket), ReceivedContent::Bytes(bytes)) => {
                let object = format!("{}/{}", code_folder(tenant), code_object(&received.sha256));
                bucket.put(&object, bytes).await.map_err(not_answered)?;
                None
            }
            (FileSource::Folder(_), ReceivedContent::File(upload)) => {
                let sync = self.reads.run(move || {
                    upload.file.sync_all()?;
                    Ok(upload)
                });
                let synced = sync.await.map_err(|_| stalled())?;
                Some(synced.map_err(|error| unwritten(&error))?)
            }
            _ => unreachable!("an archive is received into the store's own kind of place"),
        };
        Ok(WrittenCode {
            sha256: received.sha256,
            bytes: received.bytes,
            file,
        })
    }

    /// Gives a written archive its name, and replaces an existing one. The caller has inserted the
    /// row in a transaction that is open.
    ///
    /// # Errors
    /// [`ProblemKind::Unavailable`] if the store does not answer, or if the object was removed as
    /// unused since it was written.
    pub async fn keep_code(&self, tenant: TenantId, written: WrittenCode) -> Result<(), ApiError> {
        let name = code_object(&written.sha256);
        match (&self.place, written.file) {
            (FileSource::Bucket(bucket), _) => {
                let object = format!("{}/{name}", code_folder(tenant));
                let found = bucket.len(&object).await.map_err(not_answered)?;
                if found == Some(written.bytes) {
                    return Ok(());
                }
                let detail = "the archive was removed during its upload; upload it again";
                Err(ApiError::new(ProblemKind::Unavailable, detail).retry_after(1))
            }
            (FileSource::Folder(_), Some(upload)) => {
                let keep = self.reads.run(move || upload.keep(&name));
                let kept = keep.await.map_err(|_| stalled())?;
                kept.map_err(|error| unwritten(&error))
            }
            (FileSource::Folder(_), None) => unreachable!("a folder has files"),
        }
    }

    /// Returns a stored archive.
    ///
    /// # Errors
    /// As [`Files::read`].
    pub async fn read_code(
        &self,
        tenant: TenantId,
        sha256: &str,
    ) -> Result<FileDownload, ApiError> {
        let (folder, name) = (code_folder(tenant), code_object(sha256));
        let found = match &self.place {
            FileSource::Folder(root) => self.read_file(root, Path::new(&folder), &name).await?,
            FileSource::Bucket(bucket) => {
                let object = format!("{folder}/{name}");
                let found = bucket.download(&object).await.map_err(not_answered)?;
                let found = found.ok_or_else(|| gone(&name))?;
                FileDownload {
                    bytes: found.bytes,
                    sha256: None,
                    body: Body::from_stream(found.content),
                }
            }
        };
        Ok(FileDownload {
            sha256: Some(sha256.to_owned()),
            ..found
        })
    }

    /// Removes the tenant's archives that are not in `names`, and abandoned uploads.
    ///
    /// # Errors
    /// [`ProblemKind::Unavailable`] if the store does not answer.
    pub async fn remove_code_except(
        &self,
        tenant: TenantId,
        names: &[String],
    ) -> Result<(), ApiError> {
        let kept: BTreeSet<String> = names.iter().map(|sha256| code_object(sha256)).collect();
        match &self.place {
            FileSource::Folder(root) => {
                let (root, now) = (root.clone(), clock::system());
                let remove = self.reads.run(move || remove(&root, tenant, &kept, now));
                let removed = remove.await.map_err(|_| stalled())?;
                removed.map_err(|error| unwritten(&error))
            }
            FileSource::Bucket(bucket) => {
                let folder = code_folder(tenant);
                let found = bucket.list_older(&folder, clock::system() - RECENT);
                let found = found.await.map_err(not_answered)?;
                let surplus = found.iter().filter(|name| !kept.contains(*name));
                let surplus = surplus.take(MAX_REMOVED);
                let surplus: Vec<String> = surplus.map(|name| format!("{folder}/{name}")).collect();
                bucket.delete(&surplus).await.map_err(not_answered)
            }
        }
    }
}

impl UploadFile {
    fn begin(root: &Path, tenant: TenantId) -> io::Result<Self> {
        let mut folder = FolderHandle::at(root)?;
        for part in Path::new(&code_folder(tenant)) {
            folder = folder.make_inner(part)?;
        }
        let name = format!("{UPLOAD}{}", clock::new_id());
        let file = folder.create(OsStr::new(&name), READABLE)?;
        Ok(Self { folder, name, file })
    }

    fn keep(self, name: &str) -> io::Result<()> {
        self.folder
            .rename(OsStr::new(&self.name), OsStr::new(name))?;
        self.folder.sync()
    }
}

fn remove(
    root: &Path,
    tenant: TenantId,
    kept: &BTreeSet<String>,
    now: SystemTime,
) -> io::Result<()> {
    let mut folder = FolderHandle::at(root)?;
    for part in Path::new(&code_folder(tenant)) {
        folder = folder.inner(part)?;
    }
    for name in folder.names()? {
        let text = name.to_string_lossy();
        if kept.contains(text.as_ref()) {
            continue;
        }
        let modified = folder.metadata(&name)?.modified()?;
        let age = now.duration_since(modified).unwrap_or_default();
        if !text.starts_with(UPLOAD) || age > ABANDONED {
            folder.remove(&name)?;
        }
    }
    Ok(())
}

fn cut_off() -> ApiError {
    let detail = "the body ended before its announced length, or no data came for 30 s";
    ApiError::new(ProblemKind::MalformedBody, detail)
}

/// Returns the refusal of an archive above the limit.
pub fn too_large(most_bytes: u64) -> ApiError {
    let detail = format!(
        "a code archive may have at most {most_bytes} bytes; exclude large files in .musterignore"
    );
    ApiError::new(ProblemKind::BodyTooLarge, detail)
}

fn unwritten(error: &io::Error) -> ApiError {
    tracing::error!(%error, "cannot write a code archive");
    let detail =
        "the folder of code archives cannot be written now; the daemon's log has the reason";
    ApiError::new(ProblemKind::Unavailable, detail).retry_after(5)
}
