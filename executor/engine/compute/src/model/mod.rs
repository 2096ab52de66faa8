//! Networks: a static list of operations with known shapes over one flat arena of parameters.
//!
//! A [`Builder`] adds operations one after another; [`zoo`] has the networks with a name.
//! Parameters, gradients and optimizer state are flat `f32` slices with one common table of
//! [`Block`]s. Code that transfers, shards or stores them needs only this table. The module is
//! independent of optimizers, files, workers and jobs.

mod batch;
mod block;
mod builder;
mod error;
mod init;
mod input;
pub(crate) mod network;
pub(crate) mod slots;
#[cfg(test)]
mod trial;
mod workspace;
pub mod zoo;

pub use crate::layer::Activation;
pub use batch::{Batch, Draw, Targets};
pub use block::{Block, Fill, Role};
pub use builder::{Builder, Conv, ValueId, Windows};
pub use error::BuildError;
pub use input::{Input, InputShape};
pub use network::Network;
pub use workspace::Workspace;
