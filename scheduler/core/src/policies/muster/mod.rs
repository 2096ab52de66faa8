//! Our own policy: elastic sizes that make the sum over jobs of `(time left + cost)^-p` largest.
//!
//! The objective lies between the shortest remaining time first (large `p`) and plain throughput: a job that is nearly done is
//! worth much, one that is far from it little, but never nothing. The cost of a restart is part of the time left of every size but
//! the present one, so that a change must pay for itself and planning twice changes nothing. A job grows at most to twice the
//! size at which its family was measured: exploration is bounded, and bought at the price of a restart.

mod choose;
mod menu;
mod seat;

use super::Share;
use crate::problem::{Decision, Problem};

/// The policy with its numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Muster {
    /// The power `p` of the objective.
    pub power: f64,
    /// Seconds added to every time left, so that a job about to end does not outweigh all others.
    pub offset_s: f64,
    /// By how much a job may outgrow the largest measured size.
    pub explore_factor: u32,
    /// Share of a job's age that is taken off its time left: whoever waited long comes first in the end.
    pub ageing: f64,
}

impl Default for Muster {
    fn default() -> Self {
        let var = |name: &str, default: f64| {
            std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
        };
        Self {
            power: var("MP", 0.7),
            offset_s: var("MO", 60.0),
            explore_factor: 2,
            ageing: var("MA", 0.0),
        }
    }
}

impl Share for Muster {
    fn share(&self, problem: &Problem) -> Decision {
        let menus = menu::menus(problem, self);
        let chosen = choose::choose(problem, &menus);
        seat::seat(problem, &menus, chosen)
    }
}
