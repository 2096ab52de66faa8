//! What the scheduler decides, as a pure function: [`plan`] reads one [`snapshot::Snapshot`] of the cluster under a
//! [`policy::Policy`] and returns a [`Plan`] with a [`RoundReport`] that says why; [`check`] finds what is wrong with a plan.
//!
//! The stages of a round, one module each: `settle` (facts to transitions), `admit` (whose minimum runs), `estimate` (how fast, how
//! long), `scale` (who gets more), `place` (which GPUs), `resize` (is a restart worth it), `explain` (why not).
//! This crate must never know of IO, a clock, randomness, logging or async: time is in the snapshot, and the same snapshot gives
//! the same bytes.

mod admit;
pub mod apply;
pub mod check;
mod cluster;
mod contender;
mod estimate;
mod explain;
pub mod learn;
mod place;
pub mod plan;
pub mod policies;
pub mod policy;
pub mod problem;
pub mod report;
mod resize;
mod round;
mod scale;
mod settle;
pub mod snapshot;
mod solve;

pub use apply::{ApplyError, apply};
pub use check::{Violation, check};
pub use explain::apply_change;
pub use plan::{Action, Decision, Plan, PlannedTask, plan};
pub use report::RoundReport;
