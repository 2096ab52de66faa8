//! Checkpoints in an object store.
//!
//! The objects of a job lie below `<tenant>/<job>/`. Each checkpoint has the same files as in a
//! folder, below the same name. In addition there are
//!
//! * `index.json`: the list of checkpoints and the newest revision that has started, in one object.
//!   It is replaced by conditional writes only ([`BucketIndex`]), so a stale writer cannot publish
//!   a checkpoint: what is not listed is not a checkpoint;
//! * `uploads/<name>.json`: multipart uploads that were started for a checkpoint, so that another
//!   task can abort them.
//!
//! Objects are never renamed, because object stores cannot rename. A checkpoint exists while it is
//! listed. Objects that are not listed are removed by the next revision that starts ([`sweep`]).

mod index;
mod read;
mod sweep;
mod write;

use super::read::newest_sound;
use super::{CheckpointError, CheckpointSearch};
use index::BucketIndex;
use muster_model::checkpoint::Candidate;
use muster_model::id::{JobId, TenantId};
use muster_model::place::BucketAddress;
use muster_model::spec::CheckpointPolicy;
use muster_objects::Blocking;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

/// Checkpoints of one job, as one revision sees them.
#[derive(Debug, Clone)]
pub struct JobBucket {
    objects: Arc<Blocking>,
    /// Prefix of the job's objects, relative to the bucket's prefix.
    home: String,
    revision: u64,
    /// Additional files of each checkpoint, by name.
    beside: Vec<(String, Arc<Vec<u8>>)>,
}

impl JobBucket {
    /// Creates the handle; no request is sent yet.
    ///
    /// # Errors
    /// [`CheckpointError::Objects`] if the environment does not contain the access settings of the
    /// bucket.
    pub fn open(
        address: &BucketAddress,
        tenant: TenantId,
        job: JobId,
        revision: u64,
    ) -> Result<Self, CheckpointError> {
        Ok(Self {
            objects: Arc::new(Blocking::open(address)?),
            home: format!("{tenant}/{job}"),
            revision,
            beside: Vec::new(),
        })
    }

    /// As [`super::CheckpointStore::with_file`].
    #[must_use]
    pub fn with_file(mut self, name: &str, bytes: Vec<u8>) -> Self {
        self.beside.push((name.to_owned(), Arc::new(bytes)));
        self
    }

    /// Address for errors and logs.
    #[must_use]
    pub fn place(&self) -> PathBuf {
        PathBuf::from(self.objects.describe(&self.home))
    }

    /// Name of an object in the bucket.
    fn name(&self, object: &str) -> String {
        format!("{}/{object}", self.home)
    }

    /// Address of an object, for errors.
    fn address(&self, object: &str) -> PathBuf {
        PathBuf::from(self.objects.describe(&self.name(object)))
    }

    /// As [`super::CheckpointStore::claim`].
    ///
    /// # Errors
    /// As there.
    pub fn claim(&self) -> Result<(), CheckpointError> {
        self.update(|index| index.revision = self.revision)?;
        self.sweep()
    }

    /// As [`super::CheckpointStore::newest_sound`].
    ///
    /// # Errors
    /// As there.
    pub fn newest_sound(&self) -> Result<CheckpointSearch, CheckpointError> {
        newest_sound(
            self.index()?.checkpoints,
            |listed| (listed.step, listed.revision),
            |listed| self.load(listed),
            |listed| self.update(|index| index.put_aside(&listed.name)),
        )
    }

    /// As [`super::CheckpointStore::prune`].
    ///
    /// # Errors
    /// As there.
    pub fn prune(
        &self,
        policy: &CheckpointPolicy,
        spared: &BTreeSet<u64>,
        known: &mut BTreeMap<String, Candidate>,
    ) -> Result<Vec<u64>, CheckpointError> {
        let listed = self.index()?.checkpoints;
        let kept = policy.kept(listed.iter().map(index::BucketIndexEntry::candidate));
        let (kept, doomed): (Vec<_>, Vec<_>) = listed
            .into_iter()
            .partition(|listed| kept.contains_key(&listed.step) || spared.contains(&listed.step));
        *known = kept
            .iter()
            .map(|listed| (listed.name.clone(), listed.candidate()))
            .collect();
        if doomed.is_empty() {
            return Ok(Vec::new());
        }
        // Removed from the list first, so that a partly removed checkpoint is never used.
        self.update(|index| doomed.iter().for_each(|doomed| index.remove(&doomed.name)))?;
        for doomed in &doomed {
            self.delete_folder(&doomed.name)?;
        }
        let steps: BTreeSet<u64> = doomed.iter().map(|doomed| doomed.step).collect();
        Ok(steps.into_iter().rev().collect())
    }

    /// As [`super::CheckpointStore::candidates`].
    pub(super) fn candidates(
        &self,
        known: &mut BTreeMap<String, Candidate>,
    ) -> Result<Vec<Candidate>, CheckpointError> {
        let listed = self.index()?.checkpoints;
        *known = listed
            .into_iter()
            .map(|listed| (listed.name.clone(), listed.candidate()))
            .collect();
        Ok(known.values().copied().collect())
    }

    /// All checkpoints, in no particular order.
    pub(super) fn listed(&self) -> Result<Vec<index::BucketIndexEntry>, CheckpointError> {
        Ok(self.index()?.checkpoints)
    }

    /// The present index.
    fn index(&self) -> Result<BucketIndex, CheckpointError> {
        Ok(self.read_index()?.0)
    }

    fn delete_folder(&self, folder: &str) -> Result<(), CheckpointError> {
        let folder = self.name(folder);
        let objects = self.objects.list(&folder)?;
        let names: Vec<String> = objects
            .into_iter()
            .map(|object| format!("{folder}/{object}"))
            .collect();
        Ok(self.objects.delete(&names)?)
    }
}
