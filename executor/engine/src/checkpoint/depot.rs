//! Where a job's checkpoints are kept, as whoever writes and reads them sees it: a folder or a bucket.

use super::{CheckpointError, Contents, JobBucket, JobFolder, Manifest, Search};
use muster_model::checkpoint::{Candidate, Written};
use muster_model::id::{JobId, TenantId};
use muster_model::place::Place;
use muster_model::spec::CheckpointPolicy;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Of one job, as one revision sees it.
#[derive(Debug, Clone)]
pub enum Depot {
    Folder(JobFolder),
    Bucket(JobBucket),
}

impl From<JobFolder> for Depot {
    fn from(folder: JobFolder) -> Self {
        Self::Folder(folder)
    }
}

impl Depot {
    /// Of a job in the cluster's place for checkpoints; nothing is touched yet.
    ///
    /// # Errors
    /// [`CheckpointError::Objects`] when the environment does not say how to reach the bucket.
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

    /// Puts the same small file into each checkpoint, for whoever exports it: the engine itself does not read it.
    #[must_use]
    pub fn with_file(self, name: &str, bytes: Vec<u8>) -> Self {
        match self {
            Self::Folder(folder) => Self::Folder(folder.with_file(name, bytes)),
            Self::Bucket(bucket) => Self::Bucket(bucket.with_file(name, bytes)),
        }
    }

    /// For errors and logs.
    #[must_use]
    pub fn place(&self) -> PathBuf {
        match self {
            Self::Folder(folder) => folder.path(),
            Self::Bucket(bucket) => bucket.place(),
        }
    }

    /// Makes this revision the only one that writes, and removes what killed writers have left.
    ///
    /// # Errors
    /// [`CheckpointError::Fenced`] when a newer revision has started already.
    pub fn claim(&self) -> Result<(), CheckpointError> {
        match self {
            Self::Folder(folder) => folder.claim(),
            Self::Bucket(bucket) => bucket.claim(),
        }
    }

    /// The newest sound checkpoint, and what was wrong with those newer than it, which are put aside.
    ///
    /// # Errors
    /// When the disk or the store fails, which says nothing about the checkpoint; [`CheckpointError::Fenced`].
    pub fn newest_sound(&self) -> Result<Search, CheckpointError> {
        match self {
            Self::Folder(folder) => folder.newest_sound(),
            Self::Bucket(bucket) => bucket.newest_sound(),
        }
    }

    /// Writes a checkpoint of `manifest.step`; `manifest.files` is filled in here. It is in its place and safe when this returns.
    ///
    /// # Errors
    /// [`CheckpointError::Diverged`] for parameters that are not finite, [`CheckpointError::Fenced`] for a stale writer.
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

    /// Writes the trained model, whatever its size into one file. Its path, relative to the cluster's place for checkpoints.
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

    /// Removes all checkpoints but those that the policy keeps and the `spared` steps. The steps of which nothing is left, newest
    /// first. `known` saves reading a manifest twice, and holds what there is afterwards.
    ///
    /// # Errors
    /// [`CheckpointError::Fenced`] for a stale writer; when the disk or the store fails.
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

    /// What there is, as retention sees it.
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
