//! Conversion of the job document's engine part into the types of the compute half.
//!
//! Numbers of an accepted document are valid. Errors that only the builder can detect, such as two
//! shapes that do not fit, are returned as its error.

mod data;
mod network;
mod optimizer;
mod precision;

pub use data::dataset;
pub use network::network;
pub use optimizer::{constant, optimizer, state_planes};
pub use precision::precision;
