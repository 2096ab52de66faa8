//! Decisions of the scheduler, as a pure function.
//!
//! [`plan`] reads one [`snapshot::ClusterSnapshot`] of the cluster and a [`policy::Policy`]. It
//! returns a [`RoundPlan`] and a [`RoundReport`] with the reasons. [`check`] lists the rules that a
//! plan breaks.
//!
//! Every policy decides on the dense [`problem`] through one trait, [`policies::SchedulingPolicy`].
//! `planner` translates a snapshot into a problem and the policy's answer into a plan. A simulator
//! can do the same with a state of its own.
//!
//! Architecture invariant: no IO, no clock, no randomness, no logging, no async. Time is a field of
//! the snapshot. The same snapshot and policy give the same bytes.

pub mod apply;
pub mod check;
mod estimate;
pub mod learn;
pub mod plan;
mod planner;
pub mod policies;
pub mod policy;
pub mod problem;
pub mod report;
mod runtimes;
pub mod snapshot;

pub use apply::{ApplyError, apply, promote_guests};
pub use check::{Violation, check, check_with, sound, sound_with};
pub use plan::{Action, JobDecision, PlannedTask, RoundPlan, plan, plan_again};
pub use planner::{EstimateCache, apply_change, problem as problem_of};
pub use report::RoundReport;
