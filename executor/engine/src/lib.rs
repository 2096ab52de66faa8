//! The training engine: models, data, optimizers, PS shards, workers, checkpoints.
//!
//! It trains what a task launch describes and reports events. It must not depend on tenants,
//! quotas, plans or the control plane's store.
//!
//! The compute half ([`model`], [`data`], [`optimizer`], [`loss`] and the layers below them) is
//! pure: no clock, no threads except those that a caller requests, no network, no Muster crate. The
//! distributed half calls the compute half, never the other way round.

pub mod cuda;
pub mod data;
pub mod loss;
pub mod model;
pub mod onnx;
pub mod optimizer;
pub mod parts;

mod layer;

pub mod assign;
pub mod checkpoint;
pub mod collective;
pub mod compress;
pub mod document;
pub mod fabric;
pub mod pages;
pub mod shard;
pub mod squeeze;
pub mod stop;
pub mod task;
pub mod wire;
pub mod worker;

mod clock;
mod log;
mod memory;
mod prefetch;
