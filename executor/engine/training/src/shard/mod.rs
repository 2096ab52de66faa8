//! A PS shard: holds its pieces of the parameters and their optimizer state, receives gradients and
//! returns new parameters.
//!
//! Exchange:
//!
//! - [`exchange`]: synchronisation under BSP, SSP and ASP, and departures; [`state`]: its state;
//!   [`words`]: its inputs and answers.
//! - [`push`]: incoming gradients; [`step`]: the end of a step; [`clip`]: clipping.
//! - [`codes`]: steps from encoded gradients; [`together`]: the summed push of several workers.
//! - [`parts`]: steps in partitions, which [`outbox`] sends while the connection receives.
//!
//! Views and connections:
//!
//! - [`change`]: view changes; [`handover`]: transfer of pieces to other shards.
//! - [`serve`]: life of the shard; [`room`]: handshakes; [`line`](mod@line): a worker's
//!   connection, with one thread each; [`frames`]: their larger frames.
//!
//! State:
//!
//! - [`tensors`]: the arithmetic; [`recipe`]: its settings.
//! - [`lent`]: the snapshot buffer, which a checkpoint reads while training continues.
//! - [`held`]: residuals of encoded gradients, to and from checkpoints.
//! - [`follower`]: replication to the replica holder; [`copy`]: replicas of other shards; [`heir`]:
//!   a promoted replica.
//!
//! Invariant: a shard knows no data sets, meaning of losses, checkpoint files or nodes.

mod change;
mod clip;
mod codes;
mod copy;
mod exchange;
mod follower;
mod frames;
mod handover;
mod heir;
mod held;
mod lent;
mod line;
mod outbox;
mod parts;
mod push;
mod recipe;
mod room;
mod serve;
mod state;
mod step;
mod tensors;
mod together;
mod words;

pub use exchange::Exchange;
pub use recipe::Recipe;
pub use serve::{End, Identity, Shard, ShardError, Tell};
pub use tensors::{Segment, Tensors};
pub use words::{Answer, Membership, Push, Refusal, Seat};
