//! The second back end: CUDA, looked for when a task starts. The only user of `cudarc`.
//!
//! [`Device::open`] finds a GPU or says why there is none; [`crate::model::Network::workspace_on`] makes the memory of a network's passes
//! there. The same list of operations as on the CPU is carried out on arenas of the same layout: [`operation`] asks a [`queue`] for
//! kernels and products, and the queue is a GPU's stream or, in tests, an emulator that runs the same kernels on the CPU.
//!
//! It knows no optimizer's state but its own copy, and no worker, file or job.

mod arenas;
mod blas;
mod compiler;
mod device;
mod error;
mod kernels;
mod library;
mod operation;
mod product;
mod queue;
mod regions;
mod session;
mod stream;
#[cfg(test)]
mod trial;

pub use device::{Choice, Device, Gpu, Precision};
pub use error::DeviceError;
pub(crate) use session::Session;
