//! The policies: each decides on a dense [`Problem`] who holds which GPUs, and knows nothing of where the problem came from.
//!
//! A policy is a short composition of an order or a gain (who goes first, who gets more) and a placement (on which nodes). It is
//! pure: whatever it must remember from one decision to the next is in the problem, so that the same problem gives the same decision.

mod affinity;
pub mod drf;
pub mod favour;
pub mod fifo;
pub mod gandiva;
pub mod gang;
pub mod gavel;
pub mod gittins;
pub mod grow;
pub mod muster;
pub mod name;
pub mod optimus;
pub mod order;
pub mod place;
pub mod pollux;
pub mod quota;
mod resources;
pub mod room;
#[cfg(test)]
mod scene;
mod seat;
pub mod sia;
pub mod slaq;
pub mod srtf;
pub mod tetris;
pub mod themis;
pub mod tiresias;

use crate::problem::{Decision, Problem};

/// Shares the cluster.
pub trait Share: Send + Sync {
    /// Decides for every job of the problem. No node is ever given more than it has, jobs that are not movable keep what they hold,
    /// and a job holds nothing or at least its minimum.
    fn share(&self, problem: &Problem) -> Decision;

    /// What a live round need not see to, because the policy does.
    fn promises(&self) -> Promises {
        Promises::default()
    }
}

/// What a policy sees to by itself, and what it means to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promises {
    /// It weighs what a restart costs: whatever it changes is worth it.
    pub restarts_pay: bool,
    /// No job that could run on an emptier cluster waits for ever.
    pub bounded_waiting: bool,
    /// It stops running jobs for others of equal priority on purpose, because they take turns.
    pub takes_turns: bool,
    /// It brings running jobs together that lie scattered, where that is worth their restart.
    pub gathers: bool,
}

impl Default for Promises {
    fn default() -> Self {
        Self {
            restarts_pay: false,
            bounded_waiting: false,
            takes_turns: true,
            gathers: false,
        }
    }
}
