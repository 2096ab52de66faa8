//! Contents of artifacts in the checkpoint store: `artifacts/<tenant>/<job>/<object>`.

use super::{FileDownload, FileSource, Files, gone, not_answered};
use crate::problem::ApiError;
use axum::body::Body;
use muster_model::artifact::artifact_folder;
use muster_model::id::{JobId, TenantId};
use muster_store::artifact::ArtifactRow;
use std::path::Path;

impl Files {
    /// Returns the content of an artifact.
    ///
    /// # Errors
    /// As [`Files::read`]; [`crate::problem::ProblemKind::NotFound`] also if the content does not
    /// have the recorded size.
    pub async fn read_artifact(
        &self,
        tenant: TenantId,
        job: JobId,
        row: &ArtifactRow,
    ) -> Result<FileDownload, ApiError> {
        let folder = artifact_folder(tenant, job);
        let object = row.content.object.to_string();
        let found = match &self.place {
            FileSource::Folder(root) => self.read_file(root, Path::new(&folder), &object).await?,
            FileSource::Bucket(bucket) => {
                let object = format!("{folder}/{object}");
                let found = bucket.download(&object).await.map_err(not_answered)?;
                let found = found.ok_or_else(|| gone(&row.path))?;
                FileDownload {
                    bytes: found.bytes,
                    sha256: None,
                    body: Body::from_stream(found.content),
                }
            }
        };
        if found.bytes != row.content.bytes {
            tracing::error!(job.id = %job, object, bytes = found.bytes, "the content of an artifact has another size");
            return Err(gone(&row.path));
        }
        Ok(FileDownload {
            sha256: Some(row.content.sha256.clone()),
            ..found
        })
    }
}
