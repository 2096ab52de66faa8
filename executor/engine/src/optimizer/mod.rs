//! Optimizers: the update of a range of parameters from a range of summed gradients.
//!
//! They run on PS shards, each on its own part of the arena, and every formula is elementwise (but for the one factor per tensor of LARS):
//! a range updated alone gives the same bits as the same range inside a longer one. They know no network, shard or wire.

mod clip;
mod config;
mod schedule;
mod update;

pub use clip::{clip_factor, square_norm};
pub use config::{ConfigError, Optimizer, Rule};
pub use schedule::{Decay, Schedule};
pub(crate) use update::follow;
