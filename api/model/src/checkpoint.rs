//! A checkpoint: what a job can continue from, as recorded by the store.

use crate::id::{CheckpointId, JobId};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    pub id: CheckpointId,
    pub job_id: JobId,
    pub written: Written,
    /// Still on disk: the job's `keep` has not pruned it.
    pub retained: bool,
}

/// What the chief reports of a checkpoint that it has written, verified and renamed into place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Written {
    pub step: u64,
    pub epoch: f64,
    /// Revision of the job that wrote it.
    pub revision: u64,
    /// Folder, relative to the cluster's checkpoint root.
    pub path: String,
    pub bytes: u64,
    /// Hex SHA-256 of the manifest, which holds those of the files.
    pub manifest_sha256: String,
}
