//! A PS shard: holds its pieces of the parameters and their optimizer state, receives gradients and
//! returns new parameters.
//!
//! Exchange:
//!
//! - [`exchange`]: synchronisation under BSP, SSP and ASP, and departures; [`state`]: its state;
//!   [`messages`]: its inputs and answers.
//! - [`push`]: incoming gradients; [`step`]: the end of a step; [`clip`]: clipping.
//! - [`encoded_steps`]: steps from encoded gradients; [`local_aggregation`]: the summed push of
//!   several workers.
//! - [`partitions`]: steps in partitions, which [`outbox`] sends while the connection receives.
//!
//! Views and connections:
//!
//! - [`change`]: view changes; [`handover`]: transfer of pieces to other shards.
//! - [`serve`]: life of the shard; [`acceptor`]: handshakes; [`worker_connection`]: a
//!   worker's connection, with one thread each; [`frames`]: their larger frames.
//!
//! State:
//!
//! - [`tensors`]: the arithmetic; [`recipe`]: its settings.
//! - [`snapshot_buffer`]: the snapshot buffer, which a checkpoint reads while training continues.
//! - [`residuals`]: residuals of encoded gradients, to and from checkpoints.
//! - [`replication`]: replication to the replica holder; [`replica`]: replicas of other shards;
//!   [`failover`]: a promoted replica.
//!
//! Invariant: a shard knows no data sets, meaning of losses, checkpoint files or nodes.

mod acceptor;
mod change;
mod clip;
mod encoded_steps;
mod exchange;
mod failover;
mod frames;
mod handover;
mod local_aggregation;
mod messages;
mod outbox;
mod partitions;
mod push;
mod recipe;
mod replica;
mod replication;
mod residuals;
mod serve;
mod snapshot_buffer;
mod state;
mod step;
mod tensors;
mod worker_connection;

pub use exchange::ShardExchange;
pub use messages::{ConnectionId, Membership, Push, RequestRefusal, ShardAnswer};
pub use recipe::Recipe;
pub use serve::{HistorySink, Identity, ShardEnd, ShardError, ShardServer};
pub use tensors::{Segment, Tensors};
