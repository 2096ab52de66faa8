//! The second back end: CUDA, looked for when a task starts. The only user of `cudarc`.
//!
//! [`Device::open`] finds a GPU or says why there is none; [`crate::model::Network::workspace_on`] makes the memory of a network's passes
//! there. The same list of operations as on the CPU is carried out on arenas of the same layout: [`operation`] asks a [`queue`] for
//! kernels and products, and the queue is a GPU's stream or, in tests, an emulator that runs the same kernels on the CPU.
//!
//! Workers that exchange gradients let theirs leave the device in every step; [`Resident`] keeps a whole training on it, for one that has nobody
//! to exchange with, and for those whose gradients meet on their GPUs ([`together`], by [`nccl`]).
//!
//! It knows no worker, file or job.

mod arenas;
mod blas;
mod compiler;
mod convolution;
mod device;
mod dnn;
mod error;
mod kernels;
mod laid;
mod library;
mod limits;
mod nccl;
mod operation;
mod product;
mod queue;
mod regions;
mod resident;
mod session;
mod step;
mod stream;
mod together;
#[cfg(test)]
pub(crate) mod trial;
mod update;

pub(crate) use device::Means;
pub use device::{Choice, Device, Gpu, Precision};
pub use error::DeviceError;
pub use limits::Limits;
pub(crate) use nccl::{ID_BYTES, Id, Look, SumError};
pub use resident::Resident;
pub(crate) use session::Session;
