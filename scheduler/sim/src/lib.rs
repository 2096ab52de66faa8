//! Discrete-event simulator around the scheduler's core: same planner, same job states, virtual
//! clock.
//!
//! It simulates nodes that act on a decision after a delay, failing tasks and lost nodes. The
//! planner learns the true speed of a job only by running it. The crate must not contain a second
//! scheduler or a second state machine. It reads no clock and no random source: a scenario gives
//! the same outcome byte for byte.

mod cancel;
mod engine;
pub mod forecast;
pub mod outcome;
pub mod replay;
pub mod scenario;
pub mod simulation_record;
pub mod what_if;

pub use cancel::Cancel;
pub use engine::{SimError, simulate, simulate_recorded};
pub use muster_core as core;
pub use outcome::SimulationOutcome;
pub use scenario::Scenario;
