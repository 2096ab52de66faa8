//! A PS shard: holds its pieces of the parameters and their optimizer state, receives gradients and
//! returns new parameters.
//!
//! A module uses only modules below it in this list, and those of its own folder:
//!
//! - [`serve`]: life of the shard.
//! - [`connections`]: handshakes, frames of workers and of other shards.
//! - [`exchange`]: the requests of connection threads. They take the lock and wait.
//! - [`rules`]: settings, and the work on the state under the lock: steps, clipping, view changes.
//! - [`state`]: the state under the lock, by what changes together.
//! - [`replica`]: replicas of other shards; [`replication`]: replication to the replica holder;
//!   [`snapshot_buffer`]: the snapshot buffer, which a checkpoint reads while training continues;
//!   [`outbox`]: partitions of parameters, sent while the connection receives.
//! - [`messages`]: inputs and answers; [`identity`]: identity of the shard; [`recipe`]: settings of
//!   the tensors; [`tensors`]: the arithmetic.
//!
//! Invariant: a shard knows no data sets, meaning of losses, checkpoint files or nodes.

mod connections;
mod exchange;
mod identity;
mod messages;
mod outbox;
mod recipe;
mod replica;
mod replication;
mod rules;
mod serve;
mod snapshot_buffer;
mod state;
mod tensors;

pub use exchange::ShardExchange;
pub use identity::Identity;
pub use messages::{ConnectionId, Membership, Push, RequestRefusal, ShardAnswer};
pub use recipe::Recipe;
pub use serve::{HistorySink, ShardEnd, ShardError, ShardServer};
pub use tensors::{Segment, Tensors};
