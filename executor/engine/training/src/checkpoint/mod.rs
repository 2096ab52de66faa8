//! Checkpoints: written completely or not at all, verified before use, fenced against a stale
//! writer.
//!
//! The folder of a job is `<checkpoint root>/<tenant>/<job>/`. It contains
//! `step-<10 digits>-r<revision>/` folders, the `FENCE` (newest revision that has started), and at
//! the end `final-r<revision>/`. Each checkpoint folder contains
//!
//! * `model.safetensors`: the parameters, one tensor per block with the block's shape;
//! * `optimizer.safetensors`: the optimizer state, in tensors named `<block>.<plane>`;
//! * `extras.safetensors`: further arenas of the exchange, if there are any;
//! * `graph.onnx`: the network without its numbers, for exports;
//! * `manifest.json`: [`Manifest`], all other data that training needs to continue, and the lengths
//!   and checksums of the other files;
//! * `SHA256SUMS`: SHA-256 of all other files, for `sha256sum -c` and for the verification of the
//!   manifest.
//!
//! In an object store the names of the folders are prefixes of objects, and an index object is both
//! the list and the fence: [`bucket`].
//!
//! The tensor files of large models are cut into parts, `model-00001-of-00003.safetensors`. A
//! checkpoint does not depend on the number of workers or PS shards, so training can continue with
//! any number of them.
//!
//! This module must not depend on the task that requests a checkpoint, nor on the time of the
//! request.

mod bucket;
mod check;
mod checksums;
mod contents;
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
mod store;
mod write;
mod writeback;
mod writer;

pub use bucket::JobBucket;
pub use contents::Contents;
pub use fence::Fence;
pub use manifest::{
    DEFAULT_PART_BYTES, DataPosition, FileSum, LossProgress, Manifest, NamedBlock, RANDOMNESS,
    TaskCounts,
};
pub use parts::{CheckpointPart, PartTensor};
pub use plane::CheckpointArena;
pub use read::{CheckpointSearch, SoundCheckpoint};
pub use store::CheckpointStore;
pub use writer::{
    CheckpointWriter, ContentsSource, ContentsSourceError, ProtectedSteps, WriteAttempt, WriteKind,
    WriteOutcome,
};

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
    /// The content differs from what was written. Unlike [`Self::Io`] this error is permanent.
    #[error("{} is damaged: {what}", path.display())]
    Damaged { path: PathBuf, what: String },
    /// The checkpoint is sound, but belongs to another network or data order than that of the job
    /// document.
    #[error("{} does not belong to this job document: {what}", path.display())]
    Mismatch { path: PathBuf, what: String },
    /// Checkpoint of another job, from which this job should begin.
    #[error("{} does not hold a checkpoint of step {step}: {why}", path.display())]
    Absent {
        path: PathBuf,
        step: u64,
        why: &'static str,
    },
    #[error(transparent)]
    Objects(#[from] ObjectsError),
    #[error("{} was changed repeatedly from outside; only this job's tasks may write there", path.display())]
    Contended { path: PathBuf },
    #[error("revision {newest} of the job has started; revision {own} must not write any more")]
    Fenced { own: u64, newest: u64 },
    #[error("the state to be kept could not be brought here")]
    Source(#[source] ContentsSourceError),
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

/// Checkpoint folder of one job, as one revision sees it.
#[derive(Debug, Clone)]
pub struct JobFolder {
    root: PathBuf,
    /// Path relative to the checkpoint root.
    relative: String,
    revision: u64,
    /// Additional files of each checkpoint, by name.
    beside: Vec<(String, Arc<Vec<u8>>)>,
}

impl JobFolder {
    /// Creates the handle; nothing is read or written yet.
    #[must_use]
    pub fn new(checkpoint_root: &Path, tenant: TenantId, job: JobId, revision: u64) -> Self {
        Self {
            root: checkpoint_root.to_owned(),
            relative: format!("{tenant}/{job}"),
            revision,
            beside: Vec::new(),
        }
    }

    /// Adds the same small file to each checkpoint, for exports. The engine does not read it.
    #[must_use]
    pub fn with_file(mut self, name: &str, bytes: Vec<u8>) -> Self {
        self.beside.push((name.to_owned(), Arc::new(bytes)));
        self
    }

    /// Path of the folder.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.root.join(&self.relative)
    }
}
