//! A PS shard: holds its pieces of the parameters and their optimizer state, takes gradients, gives new parameters.
//!
//! [`exchange`] is the algorithm: who waits for whom under BSP, SSP and ASP, and what a departure means. [`push`] is how gradients come
//! in, [`step`] is a step's end, [`clip`] what a norm makes of it, [`codes`] how encoded gradients are applied, [`together`] gradients of several workers in one push; [`words`] is what the exchange is given and answers, [`state`] is what
//! it knows. [`change`] goes from one view of the task set to the next, and [`handover`] carries pieces to other shards. [`serve`] is the
//! shard's life, [`room`] who comes in, [`line`] a worker's connection, one thread each, [`frames`] what they carry. [`tensors`] is the arithmetic.
//!
//! [`parts`] is a step that comes and goes in parts, which [`outbox`] sends while the connection reads.
//!
//! [`lent`] is the copy of its state that a checkpoint draws while training goes on.
//!
//! [`held`] is what workers hold back of encoded gradients, on its way in and out of checkpoints.
//!
//! Where shards have followers, [`follower`] is a shard's line to its own, [`copy`] what it keeps of another, and [`heir`] a lost
//! shard that goes on from its copy.
//!
//! A shard must never know of data sets, losses' meaning, checkpoints on disk, or who is on which node.

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
