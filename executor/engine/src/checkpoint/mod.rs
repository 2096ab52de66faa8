//! Checkpoints on disk: written whole or not at all, verified before they are used, fenced against a stale writer.
//!
//! A job's folder is `<checkpoint root>/<tenant>/<job>/`. In it lie `step-<10 digits>-r<revision>/` folders, the `FENCE` (newest
//! revision that started) and at the end `final-r<revision>/`. Each checkpoint folder holds
//!
//! * `model.safetensors`: the parameters, one tensor a block, with the block's shape;
//! * `optimizer.safetensors`: the optimizer's state, tensors named `<block>.<plane>`;
//! * `extras.safetensors`: arenas that the exchange keeps besides, if there are any;
//! * `graph.onnx`: the network without its numbers, for exports;
//! * `manifest.json`: [`Manifest`], everything else that training continues from, and the other files' lengths and sums;
//! * `SHA256SUMS`: of all of them, for `sha256sum -c` and for the manifest's own check.
//!
//! In an object store the folders' names are prefixes of objects, and an index object is both the list and the fence: [`bucket`].
//!
//! Of large models each of the tensors' files is cut into parts, `model-00001-of-00003.safetensors`. Nothing depends on how many
//! workers or PS shards there were, so any number of them can go on.
//!
//! This module must never know who asks for a checkpoint or when.

mod bucket;
mod check;
mod contents;
mod depot;
mod early;
mod fence;
mod files;
mod load;
mod manifest;
mod mapping;
mod memory;
mod name;
mod origin;
mod parts;
mod plane;
mod read;
mod sums;
mod write;
mod writer;

pub use bucket::JobBucket;
pub use contents::Contents;
pub use depot::Depot;
pub use fence::Fence;
pub use manifest::{
    Curve, DEFAULT_PART_BYTES, FileSum, Layout, Manifest, NamedBlock, Position, RANDOMNESS,
};
pub use parts::{Part, Tensor};
pub use plane::Plane;
pub use read::{Found, Search};
pub use writer::{Attempt, Kind, Outcome, Source, SourceError, Spared, Writer};

use muster_model::id::{JobId, TenantId};
use muster_objects::ObjectsError;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MANIFEST_FILE: &str = "manifest.json";
const SUMS_FILE: &str = "SHA256SUMS";

/// Why a checkpoint could not be written, read or removed.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error("could not {doing} {}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The content is not what was written. Unlike [`Self::Io`] it will not be better next time.
    #[error("{} is damaged: {what}", path.display())]
    Damaged { path: PathBuf, what: String },
    /// It is sound, but of another network or data order than the job's document says.
    #[error("{} does not belong to this job document: {what}", path.display())]
    Mismatch { path: PathBuf, what: String },
    /// Another job's, from which this one is to begin.
    #[error("{} does not hold a checkpoint of step {step}: {why}", path.display())]
    Absent {
        path: PathBuf,
        step: u64,
        why: &'static str,
    },
    #[error(transparent)]
    Objects(#[from] ObjectsError),
    #[error("{} was changed by somebody else again and again; only this job's tasks may write there", path.display())]
    Contended { path: PathBuf },
    #[error("revision {newest} of the job has started; revision {own} must not write any more")]
    Fenced { own: u64, newest: u64 },
    #[error("the state to be kept could not be brought here")]
    Source(#[source] SourceError),
    #[error("the checkpoint of step {step} was not written in the time there was")]
    Late { step: u64 },
    #[error("the parameters are not finite: training has diverged")]
    Diverged,
}

impl CheckpointError {
    fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            doing,
            path: path.to_owned(),
            source,
        }
    }

    fn damaged(path: &Path, what: impl Into<String>) -> Self {
        Self::Damaged {
            path: path.to_owned(),
            what: what.into(),
        }
    }
}

/// The checkpoint folder of one job, as one revision sees it.
#[derive(Debug, Clone)]
pub struct JobFolder {
    root: PathBuf,
    /// Relative to the checkpoint root.
    relative: String,
    revision: u64,
    /// What lies in each checkpoint beside the tensors, by name.
    beside: Vec<(String, Arc<Vec<u8>>)>,
}

impl JobFolder {
    /// Names the folder; nothing is touched yet.
    #[must_use]
    pub fn new(checkpoint_root: &Path, tenant: TenantId, job: JobId, revision: u64) -> Self {
        Self {
            root: checkpoint_root.to_owned(),
            relative: format!("{tenant}/{job}"),
            revision,
            beside: Vec::new(),
        }
    }

    /// Puts the same small file into each checkpoint, for whoever exports it: the engine itself does not read it.
    #[must_use]
    pub fn with_file(mut self, name: &str, bytes: Vec<u8>) -> Self {
        self.beside.push((name.to_owned(), Arc::new(bytes)));
        self
    }

    /// Where it lies.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.root.join(&self.relative)
    }
}
