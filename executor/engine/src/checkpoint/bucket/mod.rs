//! Checkpoints in an object store.
//!
//! A job's objects lie below `<tenant>/<job>/`: of each checkpoint the same files as in a folder, below the same name, and
//!
//! * `index.json`: the checkpoints that there are, and the newest revision that started: the list and the fence in one object. It is
//!   only replaced by who has read it ([`Index`]), so a stale writer can do nothing: what is not listed is no checkpoint;
//! * `uploads/<name>.json`: uploads in parts that were begun for a checkpoint, so that somebody else can give them up.
//!
//! Nothing here is ever renamed, since object stores cannot. A checkpoint is there once it is listed, and gone once it is not; objects
//! that are not listed are removed by the next revision that starts ([`sweep`]).

mod index;
mod read;
mod sweep;
mod write;

use super::read::newest_sound;
use super::{CheckpointError, Search};
use index::Index;
use muster_model::checkpoint::Candidate;
use muster_model::id::{JobId, TenantId};
use muster_model::place::BucketAddress;
use muster_model::spec::CheckpointPolicy;
use muster_objects::Blocking;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

/// The checkpoints of one job, as one revision sees them.
#[derive(Debug, Clone)]
pub struct JobBucket {
    objects: Arc<Blocking>,
    /// Relative to the bucket's prefix.
    home: String,
    revision: u64,
    /// What lies in each checkpoint beside the tensors, by name.
    beside: Vec<(String, Arc<Vec<u8>>)>,
}

impl JobBucket {
    /// Names it; nothing is sent yet.
    ///
    /// # Errors
    /// [`CheckpointError::Objects`] when the environment does not say how to reach the bucket.
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

    /// As [`super::Depot::with_file`].
    #[must_use]
    pub fn with_file(mut self, name: &str, bytes: Vec<u8>) -> Self {
        self.beside.push((name.to_owned(), Arc::new(bytes)));
        self
    }

    /// For errors and logs.
    #[must_use]
    pub fn place(&self) -> PathBuf {
        PathBuf::from(self.objects.describe(&self.home))
    }

    /// An object's name in the bucket.
    fn name(&self, object: &str) -> String {
        format!("{}/{object}", self.home)
    }

    /// An object's address, for errors.
    fn address(&self, object: &str) -> PathBuf {
        PathBuf::from(self.objects.describe(&self.name(object)))
    }

    /// As [`super::Depot::claim`].
    ///
    /// # Errors
    /// As there.
    pub fn claim(&self) -> Result<(), CheckpointError> {
        self.update(|index| index.revision = self.revision)?;
        self.sweep()
    }

    /// As [`super::Depot::newest_sound`].
    ///
    /// # Errors
    /// As there.
    pub fn newest_sound(&self) -> Result<Search, CheckpointError> {
        newest_sound(
            self.index()?.checkpoints,
            |listed| (listed.step, listed.revision),
            |listed| self.load(listed),
            |listed| self.update(|index| index.put_aside(&listed.name)),
        )
    }

    /// As [`super::Depot::prune`].
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
        let kept = policy.kept(listed.iter().map(index::Listed::candidate));
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
        // First off the list, so that a half-removed one is never taken for a checkpoint.
        self.update(|index| doomed.iter().for_each(|doomed| index.remove(&doomed.name)))?;
        for doomed in &doomed {
            self.delete_folder(&doomed.name)?;
        }
        let steps: BTreeSet<u64> = doomed.iter().map(|doomed| doomed.step).collect();
        Ok(steps.into_iter().rev().collect())
    }

    /// As [`super::Depot::candidates`].
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

    /// The checkpoints that there are, in no order.
    pub(super) fn listed(&self) -> Result<Vec<index::Listed>, CheckpointError> {
        Ok(self.index()?.checkpoints)
    }

    /// What is listed now.
    fn index(&self) -> Result<Index, CheckpointError> {
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
