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
pub mod contestants;
mod engine;
pub mod forecast;
pub mod live;
pub mod measure;
pub mod outcome;
pub mod picture;
pub mod reference_simulators;
pub mod replay;
pub mod run;
pub mod scenario;
mod simulation_record;
#[cfg(test)]
mod testing;
pub mod trace;
pub mod what_if;

pub use cancel::Cancel;
pub use engine::{SimError, simulate};
pub use muster_core as core;
pub use outcome::SimulationOutcome;
pub use scenario::Scenario;
