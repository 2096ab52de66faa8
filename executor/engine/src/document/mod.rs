//! The job document's engine part as the types that compute.
//!
//! A document that was accepted has right numbers; what only the builder can tell (two shapes that do not fit) comes back as its error.

mod data;
mod network;
mod optimizer;
mod precision;

pub use data::dataset;
pub use network::network;
pub use optimizer::{constant, optimizer, state_planes};
pub use precision::precision;
