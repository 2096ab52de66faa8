//! The one object that says which checkpoints there are, and which revision may write.

use super::JobBucket;
use crate::checkpoint::CheckpointError;
use crate::checkpoint::Manifest;
use crate::checkpoint::check::MAX_MANIFEST_BYTES;
use muster_model::checkpoint::Candidate;
use muster_objects::Version;
use serde::{Deserialize, Serialize};
use std::thread;
use std::time::Duration;

const INDEX: &str = "index.json";

/// At most two revisions write at a time, and one of them is fenced at its next attempt.
const TRIES: u32 = 16;

/// Once more before each further try: a few seconds in all.
const PAUSE: Duration = Duration::from_millis(30);

/// The content of `index.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Index {
    pub format: u32,
    /// The newest that started: an older one changes nothing any more.
    pub revision: u64,
    pub checkpoints: Vec<Listed>,
    /// Names of trained models.
    pub finals: Vec<String>,
    /// Names of checkpoints that turned out not to be sound; they are left for whoever wants to know why.
    pub damaged: Vec<String>,
}

/// A checkpoint that is there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::checkpoint) struct Listed {
    pub name: String,
    pub step: u64,
    /// Of the writer.
    pub revision: u64,
    pub loss: Option<f64>,
    pub accuracy: Option<f64>,
}

impl Index {
    const FORMAT: u32 = 1;

    /// Before there is one.
    fn empty() -> Self {
        Self {
            format: Self::FORMAT,
            revision: 0,
            checkpoints: Vec::new(),
            finals: Vec::new(),
            damaged: Vec::new(),
        }
    }

    /// Whether the objects below this name are to stay.
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

impl Listed {
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
    pub(super) fn read_index(&self) -> Result<(Index, Option<Version>), CheckpointError> {
        let Some((text, version)) = self.objects.get(&self.name(INDEX), MAX_MANIFEST_BYTES)? else {
            return Ok((Index::empty(), None));
        };
        let damaged = |what: String| CheckpointError::damaged(&self.address(INDEX), what);
        let index: Index =
            serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        if index.format != Index::FORMAT {
            let (got, known) = (index.format, Index::FORMAT);
            return Err(damaged(format!(
                "its format is {got}, this release reads {known}"
            )));
        }
        Ok((index, Some(version)))
    }

    /// Makes sure that no newer revision has started.
    pub(super) fn judge(&self, index: &Index) -> Result<(), CheckpointError> {
        match index.revision > self.revision {
            true => Err(CheckpointError::Fenced {
                own: self.revision,
                newest: index.revision,
            }),
            false => Ok(()),
        }
    }

    /// Changes the index unless a newer revision has started. `change` may be called again with what somebody else has made of it,
    /// and so may find its own work done.
    pub(super) fn update(&self, change: impl Fn(&mut Index)) -> Result<(), CheckpointError> {
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
