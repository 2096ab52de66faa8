//! The part of the job document that the built-in engine reads: model, data set, optimizer, batch, seed.

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
    /// Of the learning rate; constant when left out.
    #[serde(default, skip_serializing_if = "Schedule::is_constant")]
    pub schedule: Schedule,
    /// The mean gradient of a step is scaled down to this Euclidean norm over all parameters where it is longer (Pascanu, Mikolov and
    /// Bengio, 2013); under `ssp` and `asp`, where a step has no mean, each worker clips the mean gradient of its own part. Above 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(exclusive_minimum = 0))]
    pub clip_norm: Option<f64>,
    /// A worker computes its part of a batch in at least so many passes, whose gradients add up before they are sent: memory falls,
    /// the result stays (but for batch normalisation, whose statistics are those of a pass). 1 to 1,024.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 1024))]
    pub accumulate: Option<u32>,
    /// Examples per step over all workers together; it stays the same as workers come and go, unless `batch_rule` says otherwise. 1 to
    /// 65,536.
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 65_536))]
    pub batch: u32,
    /// What becomes of the batch when workers come and go.
    #[serde(default, skip_serializing_if = "BatchRule::is_constant")]
    pub batch_rule: BatchRule,
    /// So many threads of the one worker train on the same parameters without locks, each a step of its own at a time (Hogwild, Recht et
    /// al., 2011); the result depends on timing. On the CPU, by `sgd` without momentum, `all_reduce` and one worker only. 1 to 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 64))]
    pub hogwild_threads: Option<u32>,
    /// Of workers on GPUs, all alike; when it is left out, each node's own (`tf32`, unless its administrator says otherwise). CPUs compute in
    /// f32 whatever it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<Precision>,
    /// Of initial parameters and data order.
    #[serde(default)]
    pub seed: u64,
}

impl Engine {
    /// Training examples in one epoch, after `train_limit`.
    #[must_use]
    pub fn train_examples(&self) -> u32 {
        self.dataset.train_examples()
    }

    /// Of a text its positions, else one: the gradients of all of them add up in an example's.
    #[must_use]
    pub fn targets_per_example(&self) -> u32 {
        match self.dataset.input() {
            Input::Tokens { length, .. } if self.dataset.is_text() => length,
            _ => 1,
        }
    }

    /// What the sum of a step's gradients is divided by.
    #[must_use]
    pub fn targets_per_step(&self) -> u32 {
        self.batch.saturating_mul(self.targets_per_example())
    }

    /// Optimizer steps in one epoch: whole batches only, so that every step has the same batch.
    #[must_use]
    pub fn steps_per_epoch(&self) -> u64 {
        u64::from(self.train_examples() / self.batch.max(1)).max(1)
    }
}
