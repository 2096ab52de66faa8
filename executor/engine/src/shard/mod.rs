//! A PS shard: holds its pieces of the parameters and their optimizer state, takes gradients, gives new parameters.
//!
//! [`exchange`] is the algorithm: who waits for whom under BSP, SSP and ASP, and what a departure means. [`serve`] is its
//! connections, one thread each. [`tensors`] is the arithmetic.
//!
//! A shard must never know of data sets, losses' meaning, checkpoints on disk or the other shards.

mod exchange;
mod serve;
mod tensors;

pub use exchange::{Answer, Exchange, Membership, Push, Refusal};
pub use serve::{End, Identity, Shard, ShardError};
pub use tensors::{Segment, Tensors};
