//! Discrete-event simulator around the scheduler's core: same planner, same job states, virtual
//! clock.
//!
//! It simulates nodes that act on a decision after a delay, failing tasks and lost nodes. The
//! planner learns the true speed of a job only by running it. The crate must not contain a second
//! scheduler or a second state machine. It reads no clock and no random source: a scenario gives
//! the same outcome byte for byte.

pub mod bound;
mod cancel;
pub mod compare;
mod course;
mod engine;
pub mod forecast;
pub mod lineup;
pub mod live;
pub mod measure;
pub mod outcome;
pub mod peers;
pub mod picture;
pub mod replay;
pub mod run;
pub mod scenario;
#[cfg(test)]
mod testing;
pub mod trace;
pub mod what_if;

pub use cancel::Cancel;
pub use engine::{SimError, simulate};
pub use muster_core as core;
pub use outcome::Outcome;
pub use scenario::Scenario;
