//! First in, first out, by whole gangs.

use super::Share;
use super::gang;
use super::order;
use super::room::Style;
use crate::problem::{Decision, Problem};

/// Gangs in order of submission.
#[derive(Debug, Clone, Copy)]
pub struct Fifo;

impl Share for Fifo {
    fn share(&self, problem: &Problem) -> Decision {
        let order = order::by_key(problem, |_| 0.0);
        gang::in_order(problem, Style::Packed, &order)
    }
}
