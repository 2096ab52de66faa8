//! Order of nodes with equally many free GPUs by their measured speed. Without measured deviations
//! it is the order of insertion.

use crate::policies::place_by_speed::is_slow;
use crate::problem::{ProblemNode, SchedulingProblem};
use std::cmp::Reverse;

/// Order of the nodes of a problem by speed.
#[derive(Debug, Default)]
pub(super) struct SpeedOrder {
    /// Whether any two nodes differ in speed.
    is_varied: bool,
    /// Kinds with slow nodes, in order.
    slow_kinds: Vec<u16>,
    skips_slow: bool,
}

impl SpeedOrder {
    pub(super) fn of(nodes: &[ProblemNode]) -> Self {
        let slow = nodes.iter().filter(|node| is_slow(node.speed_percent));
        let mut slow_kinds: Vec<u16> = slow.map(|node| node.kind).collect();
        slow_kinds.sort_unstable();
        slow_kinds.dedup();
        let first = nodes.first().map(|node| node.speed_percent);
        Self {
            is_varied: nodes.iter().any(|node| Some(node.speed_percent) != first),
            slow_kinds,
            skips_slow: false,
        }
    }

    pub(super) fn is_varied(&self) -> bool {
        self.is_varied
    }

    pub(super) fn has_slow(&self, kind: u16) -> bool {
        self.is_varied && self.slow_kinds.binary_search(&kind).is_ok()
    }

    /// Sets whether slow nodes are left out.
    pub(super) fn skip_slow(&mut self, skips_slow: bool) {
        self.skips_slow = skips_slow;
    }

    /// Whether the node is not left out.
    pub(super) fn admits(&self, problem: &SchedulingProblem, node: u32) -> bool {
        !(self.skips_slow && is_slow(speed(problem, node)))
    }

    /// Returns the nodes in the order in which they are inserted: the last one is taken first. That
    /// is the fastest, and the first of equals.
    pub(super) fn nodes(&self, nodes: &[ProblemNode]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..nodes.len()).rev().collect();
        if self.is_varied {
            order.sort_by_key(|&node| (nodes[node].speed_percent, Reverse(node)));
        }
        order
    }

    /// Inserts a node behind all nodes that are not faster.
    pub(super) fn insert(&self, problem: &SchedulingProblem, gap: &mut Vec<u32>, node: u32) {
        let own = speed(problem, node);
        let at = if self.is_varied {
            gap.partition_point(|&other| speed(problem, other) <= own)
        } else {
            gap.len()
        };
        gap.insert(at, node);
    }
}

fn speed(problem: &SchedulingProblem, node: u32) -> u16 {
    problem.nodes[node as usize].speed_percent
}
