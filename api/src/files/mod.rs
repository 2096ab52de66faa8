//! Files of checkpoints and code archives, in the cluster's folder or bucket.
//!
//! A task can write its job's folder: each file may be a link, a FIFO or of any size, and may
//! change between two checks. Paths come from the store, which has them from nodes.

mod artifacts;
mod checkpoints;
mod code;
mod folder;
mod manifest;
mod reads;

use crate::problem::{ApiError, ProblemKind};
use axum::body::Body;
pub use code::too_large;
use folder::OpenError;
use muster_model::id::{JobId, TenantId};
use muster_model::place::Place;
use muster_objects::{ObjectBucket, ObjectsError};
use reads::{BlockingReads, ReadTimeout};
use std::path::{Component, Path, PathBuf};

/// Maximum size of a manifest. That of a checkpoint of 1 TB has about 3 MB.
const MAX_MANIFEST_BYTES: u64 = 4 << 20;

const MANIFEST: &str = "manifest.json";

/// The cluster's checkpoint store.
#[derive(Debug, Clone)]
pub struct Files {
    place: FileSource,
    reads: BlockingReads,
}

#[derive(Debug, Clone)]
enum FileSource {
    Folder(PathBuf),
    Bucket(ObjectBucket),
}

/// A file to send.
pub struct FileDownload {
    pub bytes: u64,
    /// Hex checksum, if the manifest contains it.
    pub sha256: Option<String>,
    pub body: Body,
}

impl Files {
    /// Opens the checkpoint store.
    ///
    /// # Errors
    /// If the environment lacks the settings of the bucket.
    pub fn open(place: &Place) -> Result<Self, ObjectsError> {
        Ok(Self {
            place: match place {
                Place::Folder(path) => FileSource::Folder(path.clone()),
                Place::Bucket(address) => FileSource::Bucket(ObjectBucket::open(address)?),
            },
            reads: BlockingReads::default(),
        })
    }

    /// Returns the file `name` in the folder `relative`, which must be one of the job's.
    ///
    /// # Errors
    /// [`ProblemKind::NotFound`] if it does not exist or is not the job's;
    /// [`ProblemKind::UnreadableFile`] if a task has put something else in its place;
    /// [`ProblemKind::Unavailable`] if the folder or the object store does not answer.
    pub async fn read(
        &self,
        tenant: TenantId,
        job: JobId,
        relative: &str,
        name: &str,
    ) -> Result<FileDownload, ApiError> {
        let own = Path::new(&tenant.to_string()).join(job.to_string());
        let path = Path::new(relative);
        let is_plain = path
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        if !is_plain
            || !path.starts_with(&own)
            || Path::new(name).file_name() != Some(name.as_ref())
        {
            tracing::error!(job.id = %job, path = relative, "a node reported a path outside of its job's folder");
            return Err(gone(name));
        }
        match &self.place {
            FileSource::Folder(root) => self.read_file(root, path, name).await,
            FileSource::Bucket(bucket) => self.read_object(bucket, relative, name).await,
        }
    }

    async fn read_file(
        &self,
        root: &Path,
        path: &Path,
        name: &str,
    ) -> Result<FileDownload, ApiError> {
        let (root, path, wanted) = (root.to_owned(), path.to_owned(), name.to_owned());
        let opened = match self
            .reads
            .run(move || folder::open(&root, &path, &wanted))
            .await
        {
            Ok(Ok(opened)) => opened,
            Ok(Err(error)) => return Err(not_opened(name, error)),
            Err(ReadTimeout) => return Err(stalled()),
        };
        Ok(FileDownload {
            bytes: opened.bytes,
            sha256: opened.sha256,
            body: Body::from_stream(folder::content(
                opened.file,
                opened.bytes,
                self.reads.clone(),
            )),
        })
    }

    async fn read_object(
        &self,
        bucket: &ObjectBucket,
        folder: &str,
        name: &str,
    ) -> Result<FileDownload, ApiError> {
        let object = format!("{folder}/{name}");
        let found = bucket.download(&object).await.map_err(not_answered)?;
        let found = found.ok_or_else(|| gone(name))?;
        let manifest = match name {
            MANIFEST => None,
            _ => {
                let object = format!("{folder}/{MANIFEST}");
                bucket
                    .get(&object, MAX_MANIFEST_BYTES)
                    .await
                    .map_err(not_answered)?
            }
        };
        Ok(FileDownload {
            bytes: found.bytes,
            sha256: manifest.and_then(|(text, _)| manifest::stated_sha256(&text[..], name)),
            body: Body::from_stream(found.content),
        })
    }
}

fn not_opened(name: &str, error: OpenError) -> ApiError {
    match error {
        OpenError::Missing => gone(name),
        OpenError::Unfit(what) => {
            let detail = format!("{what}; the job's own tasks have written it so");
            ApiError::new(ProblemKind::UnreadableFile, detail)
        }
        OpenError::Failed(error) => {
            tracing::error!(file = name, %error, "cannot read a checkpoint");
            stalled()
        }
    }
}

fn not_answered(error: ObjectsError) -> ApiError {
    if let ObjectsError::TooLarge { bytes, .. } = error {
        let detail =
            format!("{MANIFEST} has {bytes} bytes; a manifest has at most {MAX_MANIFEST_BYTES}");
        return ApiError::new(ProblemKind::UnreadableFile, detail);
    }
    tracing::error!(
        error = &error as &dyn std::error::Error,
        "cannot read a checkpoint"
    );
    ApiError::new(
        ProblemKind::Unavailable,
        "the object store does not answer as it should",
    )
}

fn stalled() -> ApiError {
    let detail = "the folder of checkpoints does not answer now; try again later";
    ApiError::new(ProblemKind::Unavailable, detail).retry_after(5)
}

fn gone(what: &str) -> ApiError {
    ApiError::not_found(format!(
        "file {what:?} where this daemon looks for checkpoints"
    ))
}
