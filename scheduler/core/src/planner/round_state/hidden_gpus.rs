//! GPUs that are hidden from the policy, because suspended programs keep memory there.

use super::RoundState;
use crate::planner::free::NodeGpuMasks;
use crate::planner::gpu_memory::GpuMemory;

impl RoundState<'_> {
    /// Withholds the GPUs on which suspended programs keep memory, once all jobs are known, and
    /// hides from the policy those that no job holds.
    pub(super) fn hide_occupied_gpus(&mut self) {
        let memory = GpuMemory::of(self);
        if memory.is_empty() {
            return;
        }
        for (node, gpus) in memory.gpus() {
            self.free[node as usize].withheld = gpus;
        }
        let mut seen = self.kept.clone();
        let staying = self
            .jobs
            .iter()
            .filter(|live| live.scheduling_state.stays());
        for held in staying.flat_map(|live| &live.holdings) {
            *seen.entry(held.node).or_default() |= held.gpus;
        }
        for (node, gpus) in memory.gpus() {
            self.hide(node, gpus & !seen.get(&node).copied().unwrap_or(0));
        }
    }

    /// Shows the GPUs of a job that has just started or resumed there.
    pub(super) fn reveal(&mut self, gpus: &NodeGpuMasks) {
        for (node, gpus) in gpus {
            let Some(hidden) = self.hidden.get_mut(node) else {
                continue;
            };
            self.problem.nodes[*node as usize].gpus += (*hidden & gpus).count_ones();
            *hidden &= !gpus;
        }
    }

    /// Hides the withheld ones among the GPUs of a job that has just stopped or is suspended again.
    pub(super) fn hide_again(&mut self, gpus: &NodeGpuMasks) {
        for (&node, gpus) in gpus {
            let withheld = self.free[node as usize].withheld;
            self.hide(node, gpus & withheld);
        }
    }

    fn hide(&mut self, node: u32, gpus: u64) {
        let free = &self.free[node as usize];
        if gpus == 0 || !free.open {
            return;
        }
        let hidden = self.hidden.entry(node).or_default();
        let more = gpus & free.ours & !*hidden;
        *hidden |= more;
        self.problem.nodes[node as usize].gpus -= more.count_ones();
    }
}
