//! What a checkpoint says besides its tensors.

use crate::wire::hello::StepStats;
use muster_model::id::JobId;
use muster_model::spec::{Consistency, Engine};
use serde::{Deserialize, Serialize};

/// How data order and initial parameters come about, so that a reader knows what a generator's state would have been.
pub const RANDOMNESS: &str =
    "derived anew from the seed for each epoch; no generator's state is carried over";

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
    pub files: FileSums,
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

/// Length and SHA-256 of the files beside the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSums {
    #[serde(rename = "model.safetensors")]
    pub model: FileSum,
    #[serde(rename = "optimizer.safetensors")]
    pub optimizer: FileSum,
}

/// Of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSum {
    pub bytes: u64,
    /// Hex.
    pub sha256: String,
}

impl Manifest {
    /// Version of the manifest and of the files beside it.
    pub const FORMAT: u32 = 1;

    /// Epochs done, fractional.
    #[must_use]
    pub fn epoch(&self) -> f64 {
        self.position.epochs()
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
