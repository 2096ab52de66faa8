//! Scheduling policies. A policy decides on a dense [`SchedulingProblem`] which jobs hold which
//! GPUs. It does not know where the problem came from.
//!
//! A policy composes an order or a gain (which job starts first, which job grows) and a placement
//! (on which nodes). It is pure: all that it needs of earlier decisions is in the problem, so the
//! same problem gives the same decision.

mod affinity;
pub mod allocation_state;
pub mod drf;
pub mod fifo;
pub mod gandiva;
pub mod gang;
pub mod gavel;
pub mod gittins;
mod gpu_limit;
pub mod grow;
pub mod muster;
pub mod name;
pub mod optimus;
pub mod order;
pub mod place;
pub(crate) mod place_by_speed;
pub mod pollux;
pub mod prioritise_trials;
pub mod quota;
mod resources;
#[cfg(test)]
mod scene;
pub mod sia;
pub mod slaq;
pub mod srtf;
pub(crate) mod tenant_share;
pub mod tetris;
pub mod themis;
pub mod tiresias;
mod wish_placement;

use crate::problem::{PolicyDecision, SchedulingProblem};

/// Scheduling policy.
pub trait SchedulingPolicy: Send + Sync {
    /// Decides the allocation of every job of the problem. The decision never exceeds a node's
    /// GPUs. Jobs that are not movable keep their allocation. A job holds nothing or at least its
    /// minimum.
    fn allocate(&self, problem: &SchedulingProblem) -> PolicyDecision;

    /// Returns the guarantees of the policy, which a live round then need not enforce itself.
    fn capabilities(&self) -> PolicyCapabilities {
        PolicyCapabilities::default()
    }
}

/// Policy capabilities: the rules of a round that a policy keeps by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyCapabilities {
    /// The policy weighs the cost of restarts. Each of its changes is worth its cost.
    pub restarts_pay: bool,
    /// No job that could run on an emptier cluster waits without a bound.
    pub bounded_waiting: bool,
    /// The policy may stop a running job for another of equal priority (rotation).
    pub takes_turns: bool,
    /// The policy gathers scattered running jobs where that is worth their restart.
    pub gathers: bool,
}

impl Default for PolicyCapabilities {
    fn default() -> Self {
        Self {
            restarts_pay: false,
            bounded_waiting: false,
            takes_turns: true,
            gathers: false,
        }
    }
}
