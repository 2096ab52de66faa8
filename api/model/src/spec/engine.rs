//! The part of the job document that the built-in engine reads: model, data set, optimizer, batch, seed.

use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Engine {
    pub model: Model,
    pub dataset: Dataset,
    pub optimizer: Optimizer,
    /// Examples per step over all workers together; it stays the same as workers come and go. 1 to 65,536.
    pub batch: u32,
    /// Of initial parameters and data order.
    #[serde(default)]
    pub seed: u64,
}

/// A network by its kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Model {
    /// Dense layers with ReLU, then class scores.
    Mlp {
        /// Widths, input to output; at most 16, each 1 to 16,384.
        hidden: Vec<u32>,
    },
    /// Per channel count a 3×3 convolution, ReLU and 2×2 max pooling; then dense layers with ReLU, then class scores.
    Cnn {
        /// Output channels; 1 to 4 convolutions, each 1 to 1,024.
        channels: Vec<u32>,
        /// Widths; at most 8, each 1 to 16,384.
        dense: Vec<u32>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Dataset {
    pub name: DatasetName,
    /// Use only the first so many training examples; at least `batch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train_limit: Option<u32>,
    /// Use only the first so many test examples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_limit: Option<u32>,
}

/// The data sets that the engine knows how to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum DatasetName {
    /// 60,000 training and 10,000 test images of 28×28 grey pixels in 10 classes (Zalando, 2017).
    FashionMnist,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Optimizer {
    Sgd {
        /// Above 0, at most 100.
        learning_rate: f64,
        /// 0 to below 1.
        #[serde(default)]
        momentum: f64,
        #[serde(default)]
        weight_decay: f64,
    },
    /// Kingma and Ba, 2015.
    Adam {
        learning_rate: f64,
        #[serde(default = "default_beta1")]
        beta1: f64,
        #[serde(default = "default_beta2")]
        beta2: f64,
        #[serde(default = "default_epsilon")]
        epsilon: f64,
        #[serde(default)]
        weight_decay: f64,
    },
}

fn default_beta1() -> f64 {
    0.9
}

fn default_beta2() -> f64 {
    0.999
}

fn default_epsilon() -> f64 {
    1e-8
}

impl DatasetName {
    /// Its folder under the data-set root, and its name in the job document.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FashionMnist => "fashion-mnist",
        }
    }

    #[must_use]
    pub fn train_examples(self) -> u32 {
        match self {
            Self::FashionMnist => 60_000,
        }
    }

    #[must_use]
    pub fn test_examples(self) -> u32 {
        match self {
            Self::FashionMnist => 10_000,
        }
    }
}

impl fmt::Display for DatasetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Engine {
    /// Training examples in one epoch, after `train_limit`.
    #[must_use]
    pub fn train_examples(&self) -> u32 {
        let all = self.dataset.name.train_examples();
        self.dataset.train_limit.map_or(all, |limit| limit.min(all))
    }

    /// Optimizer steps in one epoch: whole batches only, so that every step has the same batch.
    #[must_use]
    pub fn steps_per_epoch(&self) -> u64 {
        u64::from(self.train_examples() / self.batch.max(1)).max(1)
    }
}
