//! Networks: an architecture becomes a static list of layers over one flat arena of parameters.
//!
//! Parameters, gradients and optimizer state are flat `f32` slices with the one table of [`Block`]s; whoever moves, shards or stores
//! them needs to know nothing else. The module knows no optimizer, file, worker or job.

mod architecture;
mod init;
mod network;
mod workspace;

pub use architecture::{Architecture, BuildError, InputShape};
pub use network::{Block, Network};
pub use workspace::Workspace;
