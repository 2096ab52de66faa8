//! What a checkpoint says besides its tensors.

use super::parts::{self, PART_BYTES, Part};
use crate::wire::hello::StepStats;
use muster_model::checkpoint::{Candidate, Written};
use muster_model::id::JobId;
use muster_model::progress::Evaluation;
use muster_model::spec::{Consistency, Engine};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How data order and initial parameters come about, so that a reader knows what a generator's state would have been.
pub const RANDOMNESS: &str =
    "derived anew from the seed for each epoch; no generator's state is carried over";

const MODEL_STEM: &str = "model";
const OPTIMIZER_STEM: &str = "optimizer";
const EXTRAS_STEM: &str = "extras";

/// How large part files grow in general.
pub const DEFAULT_PART_BYTES: usize = PART_BYTES;

/// The content of `manifest.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub format: u32,
    pub job_id: JobId,
    /// Of the writer.
    pub revision: u64,
    /// Optimizer steps done; training continues with the step of this number, counted from 0. Under SSP and ASP the chief's clock.
    pub step: u64,
    pub position: Position,
    /// The part of the job document that the parameters depend on, its seed included.
    pub engine: Engine,
    pub consistency: Consistency,
    pub randomness: String,
    /// Updates that the optimizer has made: equal to `step` under BSP, pushes applied otherwise.
    pub optimizer_updates: u64,
    pub layout: Layout,
    pub curve: Curve,
    /// In the order of the flat arena.
    pub blocks: Vec<NamedBlock>,
    /// Names of the optimizer's values per parameter; `optimizer.safetensors` holds one tensor per block and plane.
    pub state_planes: Vec<String>,
    /// Names and lengths of what the exchange keeps besides, such as what compression has not sent yet; in `extras.safetensors`.
    #[serde(default)]
    pub extras: Vec<(String, usize)>,
    /// The test split's measures after this very step, if they were taken.
    #[serde(default)]
    pub evaluation: Option<Evaluation>,
    /// How large a part file may grow, in bytes; with the blocks it says which tensor lies in which file.
    pub part_bytes: usize,
    /// The files beside the manifest, by name.
    pub files: BTreeMap<String, FileSum>,
}

/// Where in the data the next step begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// Whole epochs done.
    pub epoch: u64,
    /// Steps done in the present epoch.
    pub step_in_epoch: u64,
    pub steps_per_epoch: u64,
    pub train_examples: u64,
}

/// How many tasks trained. Parameters do not depend on it, but for the last bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    pub workers: u32,
    pub ps_shards: u32,
}

/// The training loss so far, as far as the stop rules need it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Curve {
    /// Mean training loss of each whole epoch.
    pub epoch_losses: Vec<f64>,
    /// Of the present epoch so far.
    pub loss_sum: f64,
    pub correct: u64,
    pub examples: u64,
}

/// A block of parameters: one tensor of the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedBlock {
    pub name: String,
    pub shape: Vec<usize>,
    /// In parameters, in the flat arena.
    pub offset: usize,
    /// In parameters: the product of `shape`.
    pub len: usize,
}

/// Of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSum {
    pub bytes: u64,
    /// Hex, of the whole file: for those who keep it elsewhere.
    pub sha256: String,
    /// Of each [`FileSum::CRC_BYTES`] of its data, after the header: for whoever loads it, as it takes a tenth of SHA-256's time.
    #[serde(default)]
    pub crc32: Vec<u32>,
}

impl FileSum {
    /// Data bytes under one CRC.
    pub const CRC_BYTES: usize = 4 << 20;
}

impl Manifest {
    /// Version of the manifest and of the files beside it.
    pub const FORMAT: u32 = 3;

    /// The oldest that is read. Format 2 says nothing of how data lie in pages: its files are the same but for spaces in their headers.
    pub const OLDEST_FORMAT: u32 = 2;

    /// Epochs done, fractional.
    #[must_use]
    pub fn epoch(&self) -> f64 {
        self.position.epochs()
    }
}

impl Manifest {
    /// The files of tensors: parameters are arena 0, the optimizer's planes follow, then the extras.
    #[must_use]
    pub fn parts(&self) -> Vec<Part> {
        let planes = &self.state_planes;
        let model = parts::model(&self.blocks);
        let optimizer = parts::optimizer(&self.blocks, planes);
        let extras = parts::extras(&self.extras, 1 + planes.len());
        let mut out = Part::cut(MODEL_STEM, model, self.part_bytes);
        out.extend(Part::cut(OPTIMIZER_STEM, optimizer, self.part_bytes));
        if !extras.is_empty() {
            out.extend(Part::cut(EXTRAS_STEM, extras, self.part_bytes));
        }
        if self.format > 2 {
            Part::place(&mut out);
        }
        out
    }

    /// Floats of each arena, in the order of [`Self::parts`].
    #[must_use]
    pub fn arena_lens(&self) -> Vec<usize> {
        let ends = self.blocks.iter().map(|block| block.offset + block.len);
        let parameters = ends.max().unwrap_or(0);
        let planes = std::iter::repeat_n(parameters, 1 + self.state_planes.len());
        planes
            .chain(self.extras.iter().map(|(_, len)| *len))
            .collect()
    }

    /// What is reported of it, once it lies at `path`.
    #[must_use]
    pub fn written(&self, path: String, manifest_bytes: u64, manifest_sha256: String) -> Written {
        let candidate = self.candidate();
        let beside = [super::MANIFEST_FILE, super::SUMS_FILE].map(str::to_owned);
        Written {
            step: self.step,
            epoch: self.epoch(),
            revision: self.revision,
            path,
            bytes: manifest_bytes + self.files.values().map(|sum| sum.bytes).sum::<u64>(),
            manifest_sha256,
            files: beside
                .into_iter()
                .chain(self.files.keys().cloned())
                .collect(),
            loss: candidate.loss,
            accuracy: candidate.accuracy,
        }
    }

    /// As retention sees it.
    #[must_use]
    pub fn candidate(&self) -> Candidate {
        let evaluation = self.evaluation.as_ref();
        Candidate {
            step: self.step,
            loss: evaluation.and_then(|evaluation| evaluation.loss),
            accuracy: evaluation.and_then(|evaluation| evaluation.accuracy),
        }
    }
}

impl Position {
    /// After `step` steps.
    #[must_use]
    pub fn at(step: u64, steps_per_epoch: u64, train_examples: u64) -> Self {
        Self {
            epoch: step / steps_per_epoch,
            step_in_epoch: step % steps_per_epoch,
            steps_per_epoch,
            train_examples,
        }
    }

    /// Epochs done, fractional.
    #[must_use]
    pub fn epochs(&self) -> f64 {
        self.epoch as f64 + self.step_in_epoch as f64 / self.steps_per_epoch as f64
    }
}

impl Curve {
    /// Adds a step's counts to the present epoch.
    pub fn add(&mut self, stats: StepStats) {
        self.loss_sum += stats.loss_sum;
        self.correct += stats.correct;
        self.examples += stats.examples;
    }

    /// Ends the present epoch.
    pub fn end_epoch(&mut self) {
        if self.examples > 0 {
            self.epoch_losses.push(self.loss_sum / self.examples as f64);
        }
        (self.loss_sum, self.correct, self.examples) = (0.0, 0, 0);
    }
}
