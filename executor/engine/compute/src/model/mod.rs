//! Networks: a static list of operations with known shapes over one flat arena of parameters.
//!
//! A [`NetworkBuilder`] adds operations one after another; [`zoo`] has the networks with a name.
//! Parameters, gradients and optimizer state are flat `f32` slices with one common table of
//! [`ParameterBlock`]s. Code that transfers, shards or stores them needs only this table. The
//! module is independent of optimizers, files, workers and jobs.

mod batch;
mod block;
mod builder;
mod error;
pub(crate) mod gradient_buffers;
mod init;
mod input;
pub(crate) mod network;
#[cfg(test)]
mod trial;
mod workspace;
pub mod zoo;

pub use crate::layer::ActivationFunction;
pub use batch::{Batch, BatchTargets, RandomKey};
pub use block::{ParameterBlock, ParameterInit, ParameterRole};
pub use builder::{ConvOptions, NetworkBuilder, SlidingWindow, ValueId};
pub use error::BuildError;
pub use input::{ExampleShape, ImageShape};
pub use network::Network;
pub use workspace::Workspace;
