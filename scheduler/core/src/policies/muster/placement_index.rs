//! Placement index (`PlacementIndex`): the nodes by kind and free GPUs, so that a place is found
//! without a scan of all nodes.

use super::speed_order::SpeedOrder;
use crate::policies::place;
use crate::policies::place_by_speed::{level, sites_of};
use crate::problem::{Demand, FreeResources, NodeAllocation, SchedulingProblem};

/// Candidates that are examined for one node before the next larger gap. CPU or memory can exclude
/// some. All candidates are examined for a job that may not run on every node.
const LOOKS: usize = 16;

/// Free GPUs of every node, and the nodes indexed by them.
pub(super) struct PlacementIndex<'a> {
    problem: &'a SchedulingProblem,
    tally: FreeResources,
    /// Nodes by kind and free GPUs. Entries can be stale: nodes with other free GPUs by now are
    /// skipped.
    gaps: Vec<Vec<Vec<u32>>>,
    /// Order of the nodes within `gaps`.
    order: SpeedOrder,
}

impl<'a> PlacementIndex<'a> {
    /// Returns the index of the capacity that immovable jobs leave.
    pub(super) fn new(problem: &'a SchedulingProblem) -> Self {
        let tally = FreeResources::beside_fixed(problem);
        Self {
            problem,
            tally,
            gaps: Vec::new(),
            order: SpeedOrder::of(&problem.nodes),
        }
    }

    /// Takes the parts if they are all free and of one kind.
    pub(super) fn take(&mut self, parts: &[NodeAllocation], unit: &Demand) -> bool {
        let one_kind = parts
            .windows(2)
            .all(|pair| self.problem.kind_of(&pair[0]) == self.problem.kind_of(&pair[1]));
        let fits = one_kind && !parts.is_empty() && self.tally.holds(parts, unit);
        if fits {
            self.tally.take(parts, unit);
            self.sort_in(parts);
        }
        fits
    }

    /// Returns the free GPUs of a node; `None` if a job of this unit may not run there.
    pub(super) fn free_on(&self, node: u32, unit: &Demand) -> Option<u32> {
        let node = node as usize;
        let allows = self.tally.allows(node, unit);
        allows.then(|| self.tally.free[node])
    }

    pub(super) fn give(&mut self, parts: &[NodeAllocation], unit: &Demand) {
        self.tally.give(parts, unit);
        self.sort_in(parts);
    }

    /// Takes parts that are known to be free.
    pub(super) fn hold(&mut self, parts: &[NodeAllocation], unit: &Demand) {
        self.tally.take(parts, unit);
    }

    /// Closes a node. Returns the GPUs that were free there.
    pub(super) fn close(&mut self, node: usize) -> u32 {
        std::mem::take(&mut self.tally.free[node])
    }

    /// Returns the free GPUs of the cluster.
    pub(super) fn all_free(&self) -> u32 {
        self.tally.gpus()
    }

    /// Builds the index: after the unchanged jobs were placed and before the first other job is.
    pub(super) fn open(&mut self) {
        let kinds = self
            .problem
            .nodes
            .iter()
            .map(|node| usize::from(node.kind) + 1);
        self.gaps = vec![Vec::new(); kinds.max().unwrap_or(0)];
        for node in self.order.nodes(&self.problem.nodes) {
            self.sort_in_node(node);
        }
    }

    /// Returns a place on exactly `nodes` nodes: whole nodes, and the rest on the fullest node that
    /// holds it. A place in one rack on as many nodes is preferred, then a place without slow
    /// nodes, then one on faster nodes.
    pub(super) fn find(
        &mut self,
        kind: u16,
        gpus: u32,
        nodes: u32,
        unit: &Demand,
    ) -> Option<Vec<NodeAllocation>> {
        let mut found = None;
        if self.order.has_slow(kind) {
            self.order.skip_slow(true);
            found = self.near(kind, gpus, nodes, unit);
            self.order.skip_slow(false);
        }
        let is_best = found
            .as_ref()
            .is_some_and(|parts| self.are_in_one_rack(parts));
        if !is_best {
            let any = self.near(kind, gpus, nodes, unit);
            let is_nearer = |any: &Vec<_>| found.is_none() || self.are_in_one_rack(any);
            found = any.filter(is_nearer).or(found);
        }
        let mut parts = found?;
        if self.order.is_varied() {
            let sites = sites_of(self.problem);
            level(&mut parts, &sites, |node| self.alike(node, unit));
        }
        Some(parts)
    }

    /// Returns the nodes that have as many free GPUs for the unit as this one.
    fn alike(&self, node: u32, unit: &Demand) -> impl Iterator<Item = u32> {
        let free = self.tally.free[node as usize];
        let available = self.tally.available(node as usize, unit);
        let gaps = &self.gaps[usize::from(self.problem.nodes[node as usize].kind)];
        let gap = gaps.get(free as usize).into_iter().flatten();
        gap.copied().filter(move |&other| {
            let other = other as usize;
            self.tally.free[other] == free && self.tally.available(other, unit) >= available
        })
    }

    fn near(
        &mut self,
        kind: u16,
        gpus: u32,
        nodes: u32,
        unit: &Demand,
    ) -> Option<Vec<NodeAllocation>> {
        let parts = self.anywhere(kind, gpus, nodes, unit)?;
        if self.are_in_one_rack(&parts) {
            return Some(parts);
        }
        let mut nodes = place::emptiest_first(&self.tally, self.problem, kind, unit, gpus);
        nodes.retain(|&(node, _)| self.order.admits(self.problem, node));
        let near = place::in_one_rack(
            &nodes,
            |node| place::rack(self.problem, node),
            gpus,
            place::tight,
        );
        let near = near.filter(|near| near.len() == parts.len() && self.are_in_one_rack(near));
        Some(near.unwrap_or(parts))
    }

    fn are_in_one_rack(&self, parts: &[NodeAllocation]) -> bool {
        place::are_together(parts, |node| place::rack(self.problem, node))
    }

    fn anywhere(
        &mut self,
        kind: u16,
        gpus: u32,
        nodes: u32,
        unit: &Demand,
    ) -> Option<Vec<NodeAllocation>> {
        let each = unit.gpus.max(1);
        let mut parts: Vec<NodeAllocation> = Vec::with_capacity(nodes as usize);
        let mut left = gpus;
        for to_come in (0..nodes).rev() {
            // The remaining nodes take at least one unit each.
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
        taken: &[NodeAllocation],
    ) -> Option<NodeAllocation> {
        let most = self.gaps.get(usize::from(kind))?.len();
        (gpus as usize..most).find_map(|free| {
            let node = self.node_with(kind, free, gpus, unit, taken)?;
            Some(NodeAllocation { node, gpus })
        })
    }

    fn largest_gap(
        &mut self,
        kind: u16,
        most: u32,
        unit: &Demand,
        taken: &[NodeAllocation],
    ) -> Option<NodeAllocation> {
        let gaps = self.gaps.get(usize::from(kind))?.len();
        (1..gaps).rev().find_map(|free| {
            let wanted = u32::try_from(free).unwrap_or(u32::MAX).min(most);
            let whole = wanted / unit.gpus.max(1) * unit.gpus.max(1);
            if whole == 0 {
                return None;
            }
            let node = self.node_with(kind, free, whole, unit, taken)?;
            Some(NodeAllocation { node, gpus: whole })
        })
    }

    /// Returns a node with exactly `free` free GPUs on which the unit can take `gpus`.
    fn node_with(
        &mut self,
        kind: u16,
        free: usize,
        gpus: u32,
        unit: &Demand,
        taken: &[NodeAllocation],
    ) -> Option<u32> {
        let gap = self.gaps.get_mut(usize::from(kind))?.get_mut(free)?;
        let (tally, order, problem) = (&self.tally, &self.order, self.problem);
        // Stale entries are dropped from the end, where nodes are taken.
        while gap
            .last()
            .is_some_and(|&node| tally.free[node as usize] as usize != free)
        {
            gap.pop();
        }
        let looks = if unit.nodes.is_restricted() {
            gap.len()
        } else {
            LOOKS + taken.len()
        };
        gap.iter()
            .rev()
            .take(looks)
            .take_while(|&&node| order.admits(problem, node))
            .find(|node| {
                tally.free[**node as usize] as usize == free
                    && tally.available(**node as usize, unit) >= gpus
                    && taken.iter().all(|part| part.node != **node)
            })
            .copied()
    }

    fn sort_in(&mut self, parts: &[NodeAllocation]) {
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
        let node = u32::try_from(node).unwrap_or(u32::MAX);
        self.order.insert(self.problem, &mut gaps[free], node);
    }
}
