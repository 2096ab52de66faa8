//! The policies: each decides on a dense [`Problem`] who holds which GPUs, and knows nothing of where the problem came from.
//!
//! A policy is a short composition of an order or a gain (who goes first, who gets more) and a placement (on which nodes). It is
//! pure: whatever it must remember from one decision to the next is in the problem, so that the same problem gives the same decision.

mod affinity;
pub mod drf;
pub mod fifo;
pub mod gang;
pub mod gavel;
pub mod gittins;
pub mod grow;
pub mod muster;
pub mod name;
pub mod optimus;
pub mod order;
pub mod place;
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
}
