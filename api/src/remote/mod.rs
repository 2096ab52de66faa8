//! Remote sessions: commands, forwarded ports and copied files of running tasks.
//!
//! The API server decides whether the caller may open a session and stores it. It then joins the
//! client's connection with a stream of the leading scheduler, which reaches the node. It never
//! calls an executor.

pub mod open;
mod pump;
mod scheduler;
mod upgrade;

pub use scheduler::{DialError, SchedulerDialer};
