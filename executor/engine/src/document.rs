//! The job document's engine part as the types that compute.

use crate::data::{Dataset, DatasetError, Kind, Limits, Source};
use crate::model::{BuildError, Network, zoo};
use crate::optimizer::{Optimizer, Rule};
use muster_model::spec;
use std::path::Path;

/// The network that the document describes, for its data set's images and classes.
///
/// # Errors
/// Names the layer that cannot be.
pub fn network(engine: &spec::Engine) -> Result<Network, BuildError> {
    let widths =
        |list: &[u32]| -> Vec<usize> { list.iter().map(|&width| width as usize).collect() };
    let kind = kind(engine.dataset.name);
    let (input, classes) = (kind.shape(), kind.classes());
    match &engine.model {
        spec::Model::Mlp { hidden } => zoo::mlp(input, &widths(hidden), classes),
        spec::Model::Cnn { channels, dense } => {
            zoo::cnn(input, &widths(channels), &widths(dense), classes)
        }
    }
}

/// Reads the document's data set from below `root`.
///
/// # Errors
/// When files are missing, damaged or do not fit together.
pub fn dataset(engine: &spec::Engine, root: &Path) -> Result<Dataset, DatasetError> {
    let limits = Limits {
        train: engine.dataset.train_limit.map(|limit| limit as usize),
        test: engine.dataset.test_limit.map(|limit| limit as usize),
    };
    Dataset::load(&Source::Known(kind(engine.dataset.name)), root, limits)
}

/// The document's update rule, at a constant rate.
#[must_use]
pub fn optimizer(optimizer: &spec::Optimizer) -> Optimizer {
    Optimizer::new(match *optimizer {
        spec::Optimizer::Sgd {
            learning_rate,
            momentum,
            weight_decay,
        } => Rule::Sgd {
            lr: learning_rate,
            momentum,
            nesterov: false,
            weight_decay,
        },
        spec::Optimizer::Adam {
            learning_rate,
            beta1,
            beta2,
            epsilon,
            weight_decay,
        } => Rule::Adam {
            lr: learning_rate,
            beta1,
            beta2,
            eps: epsilon,
            weight_decay,
            decoupled: false,
        },
    })
}

/// Names of what the optimizer keeps of each parameter.
#[must_use]
pub fn state_planes(of: &spec::Optimizer) -> &'static [&'static str] {
    optimizer(of).state_names()
}

fn kind(name: spec::DatasetName) -> Kind {
    match name {
        spec::DatasetName::FashionMnist => Kind::FashionMnist,
    }
}
