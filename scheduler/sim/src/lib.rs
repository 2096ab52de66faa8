//! A discrete-event simulator around the scheduler's core: the same planner, the same job states, a virtual clock.
//!
//! It has nodes that obey after a delay, jobs with a true speed that the planner only learns by running them, tasks that fail and
//! nodes that are lost. It must never own a second scheduler or a second state machine, nor read a clock or a random source: a
//! scenario gives the same outcome byte for byte.

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
