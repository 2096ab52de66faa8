//! Studies: one file per verb. Requests store orders here; the scheduler carries them out.

pub mod ask;
pub mod best;
pub mod create;
pub mod delete;
pub mod export;
pub mod get;
pub mod list;
mod long_poll_queue;
pub mod propose;
pub mod steer;
pub mod trials;
mod wire;

pub use long_poll_queue::LongPollQueues;
