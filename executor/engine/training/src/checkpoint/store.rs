//! Checkpoint store of a job (`CheckpointStore`): a folder or a bucket.

use super::{CheckpointError, CheckpointSearch, Contents, JobBucket, JobFolder, Manifest};
use muster_model::checkpoint::{Candidate, Written};
use muster_model::id::{JobId, TenantId};
use muster_model::place::Place;
use muster_model::spec::CheckpointPolicy;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Checkpoint store of one job, as one revision sees it.
#[derive(Debug, Clone)]
pub enum CheckpointStore {
    Folder(JobFolder),
    Bucket(JobBucket),
}

impl From<JobFolder> for CheckpointStore {
    fn from(folder: JobFolder) -> Self {
        Self::Folder(folder)
    }
}

impl CheckpointStore {
    /// Opens the store of a job below the cluster's checkpoint root; nothing is read or written
    /// yet.
    ///
    /// # Errors
    /// [`CheckpointError::Objects`] if the environment does not contain the access settings of the
    /// bucket.
    pub fn open(
        place: &Place,
        tenant: TenantId,
        job: JobId,
        revision: u64,
    ) -> Result<Self, CheckpointError> {
        Ok(match place {
            Place::Folder(root) => Self::Folder(JobFolder::new(root, tenant, job, revision)),
            Place::Bucket(address) => {
                Self::Bucket(JobBucket::open(address, tenant, job, revision)?)
            }
        })
    }

    /// Adds the same small file to each checkpoint, for exports. The engine does not read it.
    #[must_use]
    pub fn with_file(self, name: &str, bytes: Vec<u8>) -> Self {
        match self {
            Self::Folder(folder) => Self::Folder(folder.with_file(name, bytes)),
            Self::Bucket(bucket) => Self::Bucket(bucket.with_file(name, bytes)),
        }
    }

    /// Path or address for errors and logs.
    #[must_use]
    pub fn place(&self) -> PathBuf {
        match self {
            Self::Folder(folder) => folder.path(),
            Self::Bucket(bucket) => bucket.place(),
        }
    }

    /// Makes this revision the only one that may write, and removes the remains of killed writers.
    ///
    /// # Errors
    /// [`CheckpointError::Fenced`] if a newer revision has already started.
    pub fn claim(&self) -> Result<(), CheckpointError> {
        match self {
            Self::Folder(folder) => folder.claim(),
            Self::Bucket(bucket) => bucket.claim(),
        }
    }

    /// Returns the newest sound checkpoint, and the damage of the newer ones, which are set aside.
    ///
    /// # Errors
    /// If the disk or the store fails, which does not mean that the checkpoint is damaged;
    /// [`CheckpointError::Fenced`].
    pub fn newest_sound(&self) -> Result<CheckpointSearch, CheckpointError> {
        match self {
            Self::Folder(folder) => folder.newest_sound(),
            Self::Bucket(bucket) => bucket.newest_sound(),
        }
    }

    /// Writes a checkpoint of `manifest.step` and sets `manifest.files`. The checkpoint is
    /// published and durable when this returns.
    ///
    /// # Errors
    /// [`CheckpointError::Diverged`] for parameters that are not finite,
    /// [`CheckpointError::Fenced`] for a stale writer.
    pub fn write(
        &self,
        manifest: &mut Manifest,
        contents: &Contents,
    ) -> Result<Written, CheckpointError> {
        match self {
            Self::Folder(folder) => folder.write(manifest, contents),
            Self::Bucket(bucket) => bucket.write(manifest, contents),
        }
    }

    /// Writes the trained model into one file of any size. Returns its path relative to the
    /// cluster's checkpoint root.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn write_final(
        &self,
        manifest: &mut Manifest,
        contents: &Contents,
    ) -> Result<String, CheckpointError> {
        match self {
            Self::Folder(folder) => folder.write_final(manifest, contents),
            Self::Bucket(bucket) => bucket.write_final(manifest, contents),
        }
    }

    /// Removes all checkpoints except those that the policy keeps and the `spared` steps. Returns
    /// the steps without any checkpoint left, newest first. `known` caches manifests and contains
    /// the remaining checkpoints afterwards.
    ///
    /// # Errors
    /// [`CheckpointError::Fenced`] for a stale writer; an error if the disk or the store fails.
    pub fn prune(
        &self,
        policy: &CheckpointPolicy,
        spared: &BTreeSet<u64>,
        known: &mut BTreeMap<String, Candidate>,
    ) -> Result<Vec<u64>, CheckpointError> {
        match self {
            Self::Folder(folder) => folder.prune(policy, spared, known),
            Self::Bucket(bucket) => bucket.prune(policy, spared, known),
        }
    }

    /// Checkpoints with the measures that the retention rule uses.
    pub(super) fn candidates(
        &self,
        known: &mut BTreeMap<String, Candidate>,
    ) -> Result<Vec<Candidate>, CheckpointError> {
        match self {
            Self::Folder(folder) => folder.candidates(known),
            Self::Bucket(bucket) => bucket.candidates(known),
        }
    }
}
