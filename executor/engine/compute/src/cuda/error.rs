//! Errors of devices.

use std::fmt::Display;

/// Reason why a device is unusable or has failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DeviceError {
    #[error("\"{0}\" is no device: auto, cpu, cuda or cuda:N")]
    Unknown(String),
    #[error("\"{0}\" is no precision: f32, tf32 or bf16")]
    Precision(String),
    #[error("the CUDA library {library} was not found ({hint})")]
    Missing {
        library: &'static str,
        hint: &'static str,
    },
    #[error("cuDNN is not to be used")]
    Declined,
    #[error("NCCL {found} is older than {oldest}, the oldest that is used")]
    OldNccl { found: String, oldest: &'static str },
    #[error("libnccl has no function {symbol}")]
    Symbol { symbol: &'static str },
    #[error("there is no GPU {ordinal}: {count} can be seen by this process")]
    NoSuchGpu { ordinal: usize, count: usize },
    #[error("{gpu} has compute capability {major}.{minor}; 8.0 is the least")]
    TooOld {
        gpu: String,
        major: usize,
        minor: usize,
    },
    #[error("the GPU's kernels could not be compiled: {log}")]
    Compile { log: String },
    #[error("the GPU has no room for {bytes} bytes")]
    Memory { bytes: usize },
    #[error("could not {action} on the GPU: {cause}")]
    Failed { action: String, cause: String },
}

/// Converts the error of an action on the GPU.
pub(super) fn failure<E: Display>(action: &str) -> impl FnOnce(E) -> DeviceError + use<E> {
    let action = action.to_owned();
    move |error| DeviceError::Failed {
        action,
        cause: error.to_string(),
    }
}
