//! Manifest: description of a checkpoint besides its tensors.

use super::parts::{self, CheckpointPart, PART_BYTES};
use muster_comm::wire::metadata::StepStats;
use muster_model::checkpoint::{Candidate, Written};
use muster_model::id::JobId;
use muster_model::progress::Evaluation;
use muster_model::spec::{Consistency, Engine};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Origin of data order and initial parameters, for readers that expect the state of a random
/// generator.
pub const RANDOMNESS: &str =
    "derived anew from the seed for each epoch; no generator's state is carried over";

const MODEL_STEM: &str = "model";
const OPTIMIZER_STEM: &str = "optimizer";
const EXTRAS_STEM: &str = "extras";

/// Default limit of the size of part files in bytes.
pub const DEFAULT_PART_BYTES: usize = PART_BYTES;

/// Content of `manifest.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub format: u32,
    pub job_id: JobId,
    /// Revision of the writer.
    pub revision: u64,
    /// Number of completed optimizer steps; training continues with the step of this number,
    /// counted from 0. Under SSP and ASP the coordinator's clock.
    pub step: u64,
    pub position: DataPosition,
    /// Part of the job document that determines the parameters, including its seed.
    pub engine: Engine,
    pub consistency: Consistency,
    pub randomness: String,
    /// Number of updates of the optimizer: equal to `step` under BSP, otherwise the number of
    /// applied pushes.
    pub optimizer_updates: u64,
    pub layout: TaskCounts,
    pub curve: LossProgress,
    /// Blocks in the order of the flat arena.
    pub blocks: Vec<NamedBlock>,
    /// Names of the optimizer's values per parameter; `optimizer.safetensors` contains one tensor
    /// per block and plane.
    pub state_planes: Vec<String>,
    /// Names and lengths of further arenas of the exchange, such as residuals of codecs; in
    /// `extras.safetensors`.
    #[serde(default)]
    pub extras: Vec<(String, usize)>,
    /// Results on the test split after this step, if it was evaluated.
    #[serde(default)]
    pub evaluation: Option<Evaluation>,
    /// Maximum size of a part file in bytes. Together with the blocks it determines the file of
    /// each tensor.
    pub part_bytes: usize,
    /// Files besides the manifest, by name.
    pub files: BTreeMap<String, FileSum>,
}

/// Position in the data at which the next step begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataPosition {
    /// Number of completed epochs.
    pub epoch: u64,
    /// Number of completed steps in the present epoch.
    pub step_in_epoch: u64,
    pub steps_per_epoch: u64,
    pub train_examples: u64,
}

/// Number of tasks that trained. Parameters do not depend on it except for rounding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskCounts {
    pub workers: u32,
    pub ps_shards: u32,
}

/// Training loss so far, as far as the stop rules need it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossProgress {
    /// Mean training loss of each completed epoch.
    pub epoch_losses: Vec<f64>,
    /// Sums over the present epoch so far.
    pub loss_sum: f64,
    pub correct: u64,
    pub examples: u64,
}

/// Block of parameters: one tensor of the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedBlock {
    pub name: String,
    pub shape: Vec<usize>,
    /// Number of parameters before the block in the flat arena.
    pub offset: usize,
    /// Number of parameters: the product of `shape`.
    pub len: usize,
}

/// Length and checksums of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSum {
    pub bytes: u64,
    /// SHA-256 of the whole file in hexadecimal, for copies in other places.
    pub sha256: String,
    /// CRC-32 of each [`FileSum::CRC_BYTES`] of the data after the header, for the loader, because
    /// it is much faster than SHA-256.
    #[serde(default)]
    pub crc32: Vec<u32>,
}

impl FileSum {
    /// Number of data bytes per CRC.
    pub const CRC_BYTES: usize = 4 << 20;
}

impl Manifest {
    /// Version of the manifest and of the files besides it.
    pub const FORMAT: u32 = 3;

    /// Oldest version that can be read. Format 2 does not describe the position of data in pages;
    /// its files differ only in the spaces of their headers.
    pub const OLDEST_FORMAT: u32 = 2;

    /// Number of completed epochs, with a fraction.
    #[must_use]
    pub fn epoch(&self) -> f64 {
        self.position.epochs()
    }
}

impl Manifest {
    /// Tensor files. Parameters are arena 0; the optimizer's planes follow, then the extras.
    #[must_use]
    pub fn parts(&self) -> Vec<CheckpointPart> {
        let planes = &self.state_planes;
        let model = parts::model(&self.blocks);
        let optimizer = parts::optimizer(&self.blocks, planes);
        let extras = parts::extras(&self.extras, 1 + planes.len());
        let mut out = CheckpointPart::cut(MODEL_STEM, model, self.part_bytes);
        out.extend(CheckpointPart::cut(
            OPTIMIZER_STEM,
            optimizer,
            self.part_bytes,
        ));
        if !extras.is_empty() {
            out.extend(CheckpointPart::cut(EXTRAS_STEM, extras, self.part_bytes));
        }
        if self.format > 2 {
            CheckpointPart::place(&mut out);
        }
        out
    }

    /// Number of floats of each arena, in the order of [`Self::parts`].
    #[must_use]
    pub fn arena_lens(&self) -> Vec<usize> {
        let ends = self.blocks.iter().map(|block| block.offset + block.len);
        let parameters = ends.max().unwrap_or(0);
        let planes = std::iter::repeat_n(parameters, 1 + self.state_planes.len());
        planes
            .chain(self.extras.iter().map(|(_, len)| *len))
            .collect()
    }

    /// Report of this checkpoint, stored at `path`.
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

    /// Measures that the retention rule uses.
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

impl DataPosition {
    /// Position after `step` steps.
    #[must_use]
    pub fn at(step: u64, steps_per_epoch: u64, train_examples: u64) -> Self {
        Self {
            epoch: step / steps_per_epoch,
            step_in_epoch: step % steps_per_epoch,
            steps_per_epoch,
            train_examples,
        }
    }

    /// Number of completed epochs, with a fraction.
    #[must_use]
    pub fn epochs(&self) -> f64 {
        self.epoch as f64 + self.step_in_epoch as f64 / self.steps_per_epoch as f64
    }
}

impl LossProgress {
    /// Adds the counts of a step to the present epoch.
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
