//! CUDA back end, detected when a task starts. The only user of `cudarc`.
//!
//! [`Device::open`] finds a GPU or reports why there is none.
//! [`crate::model::Network::workspace_on`] allocates the memory of a network's passes on it.
//! Operations and the layout of arenas are those of the CPU. [`operation`] enqueues kernels and
//! products on a [`queue`]. The queue is a GPU's stream or, in tests, an emulator that runs the
//! same kernels on the CPU.
//!
//! Workers that exchange gradients through the host download them in every step. [`DeviceTrainer`]
//! keeps a whole training on the GPU. It serves single workers and workers whose gradients are
//! summed on their GPUs ([`all_reduce`], by [`nccl`]).
//!
//! The module is independent of workers, files and jobs.

mod all_reduce;
mod arenas;
mod blas;
mod compiler;
mod convolution;
mod device;
mod dnn;
#[cfg(any(test, feature = "emulator"))]
pub mod emulator;
mod error;
mod kernels;
mod library;
mod nccl;
mod operation;
mod pinned_batch;
mod product;
mod queue;
mod regions;
mod session;
mod step;
mod stream;
mod throughput;
mod trainer;
#[cfg(test)]
mod trial;
mod update;

pub use device::NcclSupport;
pub use device::{ComputePrecision, CudaDevice, Device, DeviceChoice};
pub use error::DeviceError;
pub use nccl::{AllReduceError, ID_BYTES, NcclId, PollCallback};
pub(crate) use session::DeviceSession;
pub use throughput::GpuThroughput;
pub use trainer::DeviceTrainer;
