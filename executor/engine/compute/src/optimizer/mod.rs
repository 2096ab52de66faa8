//! Optimizers: the update of a range of parameters from a range of summed gradients.
//!
//! Optimizers run on PS shards, each on its own part of the arena. Every formula is elementwise,
//! except for the factor per tensor of LARS. A range updated alone therefore has the same bits as
//! within a longer range. Optimizers are independent of networks, shards and the wire protocol.

mod clip;
mod config;
mod schedule;
mod update;

pub use clip::{clip_factor, square_norm};
pub use config::{HyperparameterError, OptimizerConfig, UpdateRule};
pub use schedule::{LearningRateDecay, LearningRateSchedule};
pub use update::follow;
