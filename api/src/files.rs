//! What lies in the cluster's place for checkpoints, be it a folder or a bucket.
//!
//! Paths come from the store, which has them of nodes: none may lead out of its job's own folder, nor may a link.

use crate::problem::{Kind, Refusal};
use axum::body::Body;
use muster_model::id::{JobId, TenantId};
use muster_model::place::Place;
use muster_objects::{Bucket, ObjectsError};
use serde_json::Value;
use std::path::{Component, Path, PathBuf};
use tokio::fs::File;
use tokio_util::io::ReaderStream;

/// Read from disk at once.
const BUFFER: usize = 256 << 10;

const MANIFEST: &str = "manifest.json";

/// The cluster's place for checkpoints.
#[derive(Debug, Clone)]
pub enum Files {
    Folder(PathBuf),
    Bucket(Bucket),
}

/// A file on its way.
pub struct Found {
    pub bytes: u64,
    /// Hex, if its manifest states it.
    pub sha256: Option<String>,
    pub body: Body,
}

impl Files {
    /// # Errors
    /// When the environment does not say how to reach the bucket.
    pub fn open(place: &Place) -> Result<Self, ObjectsError> {
        Ok(match place {
            Place::Folder(path) => Self::Folder(path.clone()),
            Place::Bucket(address) => Self::Bucket(Bucket::open(address)?),
        })
    }

    /// The file `name` in the folder `relative`, which must be one of the job's.
    ///
    /// # Errors
    /// [`Kind::NotFound`] when there is none or it is not the job's; [`Kind::Unavailable`] when the object store does not answer.
    pub async fn read(
        &self,
        tenant: TenantId,
        job: JobId,
        relative: &str,
        name: &str,
    ) -> Result<Found, Refusal> {
        let own = Path::new(&tenant.to_string()).join(job.to_string());
        let path = Path::new(relative);
        let plain = |path: &Path| {
            path.components()
                .all(|part| matches!(part, Component::Normal(_)))
        };
        if !plain(path) || !path.starts_with(&own) || !plain(Path::new(name)) {
            tracing::error!(job.id = %job, path = relative, "a node reported a path outside of its job's folder");
            return Err(gone(relative));
        }
        match self {
            Self::Folder(root) => read_file(root, &own, path, name).await,
            Self::Bucket(bucket) => read_object(bucket, relative, name).await,
        }
    }
}

async fn read_file(root: &Path, own: &Path, path: &Path, name: &str) -> Result<Found, Refusal> {
    let real =
        |path: PathBuf| async { tokio::fs::canonicalize(path).await.map_err(|_| gone(name)) };
    let (home, folder) = (real(root.join(own)).await?, real(root.join(path)).await?);
    let file = folder.join(name);
    let plain = tokio::fs::symlink_metadata(&file)
        .await
        .is_ok_and(|found| found.is_file());
    if !folder.starts_with(home) || !plain {
        return Err(gone(name));
    }
    let file = File::open(&file).await.map_err(|_| gone(name))?;
    let manifest = tokio::fs::read(folder.join(MANIFEST)).await.ok();
    Ok(Found {
        bytes: file.metadata().await.map_err(|_| gone(name))?.len(),
        sha256: manifest.and_then(|text| stated_sha256(&text, name)),
        body: Body::from_stream(ReaderStream::with_capacity(file, BUFFER)),
    })
}

async fn read_object(bucket: &Bucket, folder: &str, name: &str) -> Result<Found, Refusal> {
    let failed = |error: ObjectsError| {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "cannot read a checkpoint"
        );
        Refusal::new(
            Kind::Unavailable,
            "the object store does not answer as it should",
        )
    };
    let object = format!("{folder}/{name}");
    let found = bucket.download(&object).await.map_err(failed)?;
    let found = found.ok_or_else(|| gone(name))?;
    let manifest = bucket.get(&format!("{folder}/{MANIFEST}")).await;
    let manifest = manifest.map_err(failed)?;
    Ok(Found {
        bytes: found.bytes,
        sha256: manifest.and_then(|(text, _)| stated_sha256(&text, name)),
        body: Body::from_stream(found.content),
    })
}

/// What the manifest beside a file says of it.
fn stated_sha256(manifest: &[u8], name: &str) -> Option<String> {
    let manifest: Value = serde_json::from_slice(manifest).ok()?;
    let sha256 = manifest.get("files")?.get(name)?.get("sha256")?.as_str()?;
    (sha256.len() == 64 && sha256.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .then(|| sha256.to_owned())
}

fn gone(what: &str) -> Refusal {
    Refusal::not_found(format!(
        "file {what:?} where this daemon looks for checkpoints"
    ))
}
