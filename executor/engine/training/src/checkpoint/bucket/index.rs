//! Index object of a job: the list of its checkpoints, and the revision that may write.

use super::JobBucket;
use crate::checkpoint::CheckpointError;
use crate::checkpoint::Manifest;
use crate::checkpoint::check::MAX_MANIFEST_BYTES;
use muster_model::checkpoint::Candidate;
use muster_objects::ObjectVersion;
use serde::{Deserialize, Serialize};
use std::thread;
use std::time::Duration;

const INDEX: &str = "index.json";

/// Maximum number of attempts of a conditional write. At most two revisions write at a time, and
/// one of them is fenced at its next attempt.
const TRIES: u32 = 16;

/// Pause before a further attempt, multiplied by the number of attempts so far; a few seconds in
/// total.
const PAUSE: Duration = Duration::from_millis(30);

/// Content of `index.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BucketIndex {
    pub format: u32,
    /// Newest revision that has started. An older one may not change anything.
    pub revision: u64,
    pub checkpoints: Vec<BucketIndexEntry>,
    /// Names of trained models.
    pub finals: Vec<String>,
    /// Names of checkpoints that failed their verification. Their objects are kept for analysis.
    pub damaged: Vec<String>,
}

/// Checkpoint in the list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::checkpoint) struct BucketIndexEntry {
    pub name: String,
    pub step: u64,
    /// Revision of the writer.
    pub revision: u64,
    pub loss: Option<f64>,
    pub accuracy: Option<f64>,
}

impl BucketIndex {
    const FORMAT: u32 = 1;

    /// Index of a job that has none yet.
    fn empty() -> Self {
        Self {
            format: Self::FORMAT,
            revision: 0,
            checkpoints: Vec::new(),
            finals: Vec::new(),
            damaged: Vec::new(),
        }
    }

    /// Whether the objects below this name must be kept.
    pub fn holds(&self, name: &str) -> bool {
        let mut listed = self.checkpoints.iter();
        let others = self.finals.iter().chain(&self.damaged);
        listed.any(|listed| listed.name == name) || others.into_iter().any(|other| other == name)
    }

    pub fn remove(&mut self, name: &str) {
        self.checkpoints.retain(|listed| listed.name != name);
        self.finals.retain(|other| other != name);
    }

    pub fn put_aside(&mut self, name: &str) {
        self.remove(name);
        if !self.damaged.iter().any(|other| other == name) {
            self.damaged.push(name.to_owned());
        }
    }
}

impl BucketIndexEntry {
    pub fn of(name: &str, manifest: &Manifest) -> Self {
        let Candidate {
            step,
            loss,
            accuracy,
        } = manifest.candidate();
        Self {
            name: name.to_owned(),
            step,
            revision: manifest.revision,
            loss,
            accuracy,
        }
    }

    pub fn candidate(&self) -> Candidate {
        Candidate {
            step: self.step,
            loss: self.loss,
            accuracy: self.accuracy,
        }
    }
}

impl JobBucket {
    pub(super) fn read_index(
        &self,
    ) -> Result<(BucketIndex, Option<ObjectVersion>), CheckpointError> {
        let Some((text, version)) = self.objects.get(&self.name(INDEX), MAX_MANIFEST_BYTES)? else {
            return Ok((BucketIndex::empty(), None));
        };
        let index: BucketIndex =
            serde_json::from_slice(&text).map_err(|error| self.damaged_index(error.to_string()))?;
        if index.format != BucketIndex::FORMAT {
            let (got, known) = (index.format, BucketIndex::FORMAT);
            return Err(
                self.damaged_index(format!("its format is {got}, this release reads {known}"))
            );
        }
        Ok((index, Some(version)))
    }

    fn damaged_index(&self, what: String) -> CheckpointError {
        CheckpointError::damaged(&self.address(INDEX), what)
    }

    /// Checks that no newer revision has started.
    pub(super) fn judge(&self, index: &BucketIndex) -> Result<(), CheckpointError> {
        if index.revision > self.revision {
            Err(CheckpointError::Fenced {
                own: self.revision,
                newest: index.revision,
            })
        } else {
            Ok(())
        }
    }

    /// Changes the index by a conditional write, unless a newer revision has started. After a
    /// conflict `change` is called again with the index of another writer, so its work may already
    /// be done.
    pub(super) fn update(&self, change: impl Fn(&mut BucketIndex)) -> Result<(), CheckpointError> {
        for attempt in 0..TRIES {
            thread::sleep(PAUSE * attempt);
            let (before, version) = self.read_index()?;
            self.judge(&before)?;
            let mut after = before.clone();
            change(&mut after);
            if after == before {
                return Ok(());
            }
            let mut text = serde_json::to_vec_pretty(&after).expect("an index is plain data");
            text.push(b'\n');
            let replaced = self
                .objects
                .replace(&self.name(INDEX), text, version.as_ref())?;
            if replaced {
                return Ok(());
            }
        }
        Err(CheckpointError::Contended {
            path: self.address(INDEX),
        })
    }
}
