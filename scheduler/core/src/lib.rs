//! What the scheduler decides, as a pure function: [`plan`] reads one [`snapshot::Snapshot`] of the cluster under a
//! [`policy::Policy`] and returns a [`Plan`] with a [`RoundReport`] that says why; [`check`] finds what is wrong with a plan.
//!
//! Every policy decides on the dense [`problem`] through one trait, [`policies::Share`]; `live` turns a snapshot into a problem and
//! the answer into a plan, and a simulator may do the same with its own world.
//! This crate must never know of IO, a clock, randomness, logging or async: time is in the snapshot, and the same snapshot gives
//! the same bytes.

pub mod apply;
pub mod check;
mod estimate;
pub mod learn;
mod live;
pub mod plan;
pub mod policies;
pub mod policy;
pub mod problem;
pub mod report;
mod runtimes;
pub mod snapshot;

pub use apply::{ApplyError, apply, move_up};
pub use check::{Violation, check, sound};
pub use live::{Memory, apply_change};
pub use plan::{Action, Decision, Plan, PlannedTask, plan, plan_again};
pub use report::RoundReport;
