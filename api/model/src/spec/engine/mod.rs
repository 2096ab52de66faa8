//! The `engine` part of the job document: model, data set, optimizer, batch, seed.

mod batch_rule;
mod dataset;
mod layer;
mod model;
mod optimizer;
mod precision;

pub use batch_rule::BatchRule;
pub use dataset::{
    Augmentation, DataFiles, Dataset, DatasetName, Input, KnownDataset, Learn, Normalisation,
};
pub use layer::{Activation, Layer, Sides};
pub use model::{DenseNetVariant, Goal, Model};
pub use optimizer::{Decay, Optimizer, Schedule};
pub use precision::Precision;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Engine {
    pub model: Model,
    pub dataset: Dataset,
    pub optimizer: Optimizer,
    /// Course of the learning rate. Default: constant.
    #[serde(default, skip_serializing_if = "Schedule::is_constant")]
    pub schedule: Schedule,
    /// Largest Euclidean norm of the mean gradient of a step over all parameters; a longer gradient
    /// is scaled down (Pascanu, Mikolov and Bengio, 2013). Under `ssp` and `asp` a step has no
    /// mean, so each worker clips its own mean gradient. Above 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(exclusive_minimum = 0))]
    pub clip_norm: Option<f64>,
    /// Smallest number of passes in which a worker computes its part of a batch; their gradients
    /// add up before they are sent. Memory falls. The result stays the same, except for batch
    /// normalisation, whose statistics cover one pass. 1 to 1,024.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 1024))]
    pub accumulate: Option<u32>,
    /// Examples per step over all workers together. It does not change with the number of workers,
    /// unless `batch_rule` says so. 1 to 65,536.
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 65_536))]
    pub batch: u32,
    /// Rule by which the batch of an update changes during the job.
    #[serde(default, skip_serializing_if = "BatchRule::is_constant")]
    pub batch_rule: BatchRule,
    /// Largest batch with `batch_rule: goodput`, which requires it. More than `batch`, at most
    /// 65,536.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 2, maximum = 65_536))]
    pub max_batch: Option<u32>,
    /// Number of threads of the one worker that share parameters without locks, each with its own
    /// step (Hogwild, Recht et al., 2011). The result depends on timing. Only on the CPU, with
    /// `sgd` without momentum, `all_reduce` and one worker. 1 to 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 64))]
    pub hogwild_threads: Option<u32>,
    /// Precision of all workers on GPUs. Default: the node's setting (`tf32` unless its
    /// administrator changed it). CPUs always compute in f32.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<Precision>,
    /// Seed of the initial parameters and of the order of the data.
    #[serde(default)]
    pub seed: u64,
}

impl Engine {
    /// Returns the training examples of one epoch, after `train_limit`.
    #[must_use]
    pub fn train_examples(&self) -> u32 {
        self.dataset.train_examples()
    }

    /// Returns the targets of one example: the positions of a text, otherwise 1. Their gradients
    /// add up.
    #[must_use]
    pub fn targets_per_example(&self) -> u32 {
        match self.dataset.input() {
            Input::Tokens { length, .. } if self.dataset.is_text() => length,
            _ => 1,
        }
    }

    /// Returns the number by which the sum of a step's gradients is divided.
    #[must_use]
    pub fn targets_per_step(&self) -> u32 {
        self.batch.saturating_mul(self.targets_per_example())
    }

    /// Returns the optimizer steps of one epoch. Only whole batches count, so every step has the
    /// same batch.
    #[must_use]
    pub fn steps_per_epoch(&self) -> u64 {
        u64::from(self.train_examples() / self.batch.max(1)).max(1)
    }
}
