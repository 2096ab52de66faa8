//! The nodes of the cluster by kind and free GPUs, so that a place is found without looking at every node.

use crate::policies::place;
use crate::problem::{Demand, Part, Problem, Tally};

/// Candidates looked at for one node before the next larger gap is tried: CPU or memory may be what lacks.
const LOOKS: usize = 16;

/// Free GPUs of every node, and the nodes by that.
pub(super) struct Floor<'a> {
    problem: &'a Problem,
    tally: Tally,
    /// By kind and free GPUs; may name nodes that have other free GPUs by now, and those are passed over.
    gaps: Vec<Vec<Vec<u32>>>,
}

impl<'a> Floor<'a> {
    /// Everything but what jobs hold that may not be touched.
    pub(super) fn new(problem: &'a Problem) -> Self {
        let tally = Tally::beside_fixed(problem);
        Self {
            problem,
            tally,
            gaps: Vec::new(),
        }
    }

    /// Takes these GPUs if they are all free, and of one kind.
    pub(super) fn take(&mut self, parts: &[Part], unit: &Demand) -> bool {
        let kind = |part: &Part| self.problem.nodes[part.node as usize].kind;
        let one_kind = parts
            .windows(2)
            .all(|pair| kind(&pair[0]) == kind(&pair[1]));
        let fits = one_kind && !parts.is_empty() && self.tally.holds(parts, unit);
        if fits {
            self.tally.take(parts, unit);
            self.sort_in(parts);
        }
        fits
    }

    /// Free GPUs of a node.
    pub(super) fn free_on(&self, node: u32) -> u32 {
        self.tally.free[node as usize]
    }

    pub(super) fn give(&mut self, parts: &[Part], unit: &Demand) {
        self.tally.give(parts, unit);
        self.sort_in(parts);
    }

    /// Takes what is there for certain.
    pub(super) fn hold(&mut self, parts: &[Part], unit: &Demand) {
        self.tally.take(parts, unit);
    }

    /// Nothing of a node is to be had any more; how many GPUs were free there.
    pub(super) fn close(&mut self, node: usize) -> u32 {
        std::mem::take(&mut self.tally.free[node])
    }

    /// GPUs in all.
    pub(super) fn all_free(&self) -> u32 {
        self.tally.gpus()
    }

    /// Sorts all nodes in: after those who stay were seated, before the first is seated anew.
    pub(super) fn open(&mut self) {
        let kinds = self
            .problem
            .nodes
            .iter()
            .map(|node| usize::from(node.kind) + 1);
        self.gaps = vec![Vec::new(); kinds.max().unwrap_or(0)];
        // Backwards: the last in comes out first, and the first node is to.
        for node in (0..self.problem.nodes.len()).rev() {
            self.sort_in_node(node);
        }
    }

    /// A gang on exactly so many nodes: whole nodes, and the rest on the fullest that holds it; in one rack, where as many nodes of one
    /// hold it.
    pub(super) fn find(
        &mut self,
        kind: u16,
        gpus: u32,
        nodes: u32,
        unit: &Demand,
    ) -> Option<Vec<Part>> {
        let parts = self.anywhere(kind, gpus, nodes, unit)?;
        let rack = |node| place::rack(self.problem, node);
        if place::are_together(&parts, rack) {
            return Some(parts);
        }
        let nodes = place::emptiest_first(&self.tally, self.problem, kind, unit, gpus);
        let near = place::in_one_rack(&nodes, rack, gpus, place::tight);
        let near = near.filter(|near| near.len() == parts.len() && place::are_together(near, rack));
        Some(near.unwrap_or(parts))
    }

    fn anywhere(&mut self, kind: u16, gpus: u32, nodes: u32, unit: &Demand) -> Option<Vec<Part>> {
        let each = unit.gpus.max(1);
        let mut parts: Vec<Part> = Vec::with_capacity(nodes as usize);
        let mut left = gpus;
        for to_come in (0..nodes).rev() {
            // The nodes to come take a unit each at least.
            let most = left - to_come * each;
            let part = if to_come == 0 {
                self.smallest_gap(kind, most, unit, &parts)
            } else {
                self.largest_gap(kind, most, unit, &parts)
            }?;
            left -= part.gpus;
            parts.push(part);
        }
        (left == 0).then_some(parts)
    }

    fn smallest_gap(
        &mut self,
        kind: u16,
        gpus: u32,
        unit: &Demand,
        taken: &[Part],
    ) -> Option<Part> {
        let most = self.gaps.get(usize::from(kind))?.len();
        (gpus as usize..most).find_map(|free| {
            let node = self.node_with(kind, free, gpus, unit, taken)?;
            Some(Part { node, gpus })
        })
    }

    fn largest_gap(&mut self, kind: u16, most: u32, unit: &Demand, taken: &[Part]) -> Option<Part> {
        let gaps = self.gaps.get(usize::from(kind))?.len();
        (1..gaps).rev().find_map(|free| {
            let wanted = u32::try_from(free).unwrap_or(u32::MAX).min(most);
            let whole = wanted / unit.gpus.max(1) * unit.gpus.max(1);
            if whole == 0 {
                return None;
            }
            let node = self.node_with(kind, free, whole, unit, taken)?;
            Some(Part { node, gpus: whole })
        })
    }

    /// A node with exactly so many free GPUs on which so many can be had.
    fn node_with(
        &mut self,
        kind: u16,
        free: usize,
        gpus: u32,
        unit: &Demand,
        taken: &[Part],
    ) -> Option<u32> {
        let gap = self.gaps.get_mut(usize::from(kind))?.get_mut(free)?;
        let tally = &self.tally;
        // What was sorted in and has changed since is dropped from the end, where it is looked for.
        while gap
            .last()
            .is_some_and(|&node| tally.free[node as usize] as usize != free)
        {
            gap.pop();
        }
        let fits = |node: &&u32| {
            tally.free[**node as usize] as usize == free
                && tally.available(**node as usize, unit) >= gpus
                && taken.iter().all(|part| part.node != **node)
        };
        let looks = LOOKS + taken.len();
        gap.iter().rev().take(looks).find(fits).copied()
    }

    fn sort_in(&mut self, parts: &[Part]) {
        if self.gaps.is_empty() {
            return;
        }
        for part in parts {
            self.sort_in_node(part.node as usize);
        }
    }

    fn sort_in_node(&mut self, node: usize) {
        let free = self.tally.free[node] as usize;
        let gaps = &mut self.gaps[usize::from(self.problem.nodes[node].kind)];
        if gaps.len() <= free {
            gaps.resize(free + 1, Vec::new());
        }
        gaps[free].push(u32::try_from(node).unwrap_or(u32::MAX));
    }
}
