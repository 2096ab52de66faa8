//! Resumption of a suspended job on its own GPUs.

use super::RoundState;
use crate::plan::Action;
use crate::planner::free::{NodeGpuMasks, count_gpus};
use crate::planner::planned_job::PlannedJob;
use crate::planner::scheduling_state::SchedulingState;
use muster_model::job::JobState;
use std::collections::BTreeMap;

impl RoundState<'_> {
    /// Resumes a job on its own GPUs, if all of them are free and quota and CPU allow it. Returns
    /// whether it was resumed.
    pub(crate) fn resume(&mut self, index: usize, why: &str) -> bool {
        let live = &self.jobs[index];
        let home = live.home();
        let gpus = count_gpus(&home);
        let held = self.held[live.tenant as usize];
        if self
            .quota(live)
            .is_some_and(|quota| held.saturating_add(gpus) > quota)
        {
            return false;
        }
        let cpu_milli = cpu_of_workers(live);
        if !self.is_open_for(&home, &cpu_milli) {
            return false;
        }
        self.remember(index);
        let lent = self.lend(home.iter().map(|(&node, &gpus)| (node, gpus)));
        for (&node, &gpus) in &home {
            let free = &mut self.free[node as usize];
            free.now &= !gpus;
            let needed = cpu_milli.get(&node).copied().unwrap_or(0);
            free.now_room.cpu_milli -= needed;
            free.later_room.cpu_milli -= needed;
        }
        let now_ms = self.now_ms;
        let live = &mut self.jobs[index];
        for held in &mut live.holdings {
            held.gpus |= home.get(&held.node).copied().unwrap_or(0);
            held.room.cpu_milli += cpu_milli.get(&held.node).copied().unwrap_or(0);
        }
        self.held[live.tenant as usize] += gpus;
        self.reveal(&home);
        let live = &mut self.jobs[index];
        let why = if live.job.was_continued() {
            format!("continued by {}", live.job.asker())
        } else {
            why.to_owned()
        };
        let beside = None;
        live.take(Action::Continue { why, beside, lent }, now_ms);
        true
    }

    /// Whether these GPUs and this CPU are free on open nodes, lendable GPUs included.
    fn is_open_for(&self, gpus: &NodeGpuMasks, cpu_milli: &BTreeMap<u32, i64>) -> bool {
        gpus.iter().all(|(node, gpus)| {
            let Some(free) = self.free.get(*node as usize) else {
                return false;
            };
            let needed = cpu_milli.get(node).copied().unwrap_or(0);
            let there = free.now | self.lendable.get(node).copied().unwrap_or(0);
            free.open && there & gpus == *gpus && (needed == 0 || free.now_room.cpu_milli >= needed)
        })
    }

    /// Suspends a job again that this round has resumed. Its GPUs are free again, or its host's
    /// alone. Returns whether there was a resumption to undo.
    pub(crate) fn undo_resumption(&mut self, index: usize) -> bool {
        let live = &self.jobs[index];
        let Some(Action::Continue { beside, .. }) = live.actions.last() else {
            return false;
        };
        let gpus = if beside.is_none() {
            live.home()
        } else {
            NodeGpuMasks::new()
        };
        let cpu_milli = cpu_of_workers(live);
        if beside.is_some() {
            self.unpair(index);
        }
        let now_ms = self.now_ms;
        let live = &mut self.jobs[index];
        live.actions.pop();
        live.state = JobState::Suspended;
        live.scheduling_state = SchedulingState::of(&live.state, live.not_before_ms, now_ms);
        for held in &mut live.holdings {
            let needed = cpu_milli.get(&held.node).copied().unwrap_or(0);
            let given = gpus.get(&held.node).copied().unwrap_or(0);
            held.gpus &= !given;
            held.room.cpu_milli -= needed;
            let free = &mut self.free[held.node as usize];
            free.now |= given;
            free.now_room.cpu_milli += needed;
            free.later_room.cpu_milli += needed;
        }
        self.held[live.tenant as usize] -= count_gpus(&gpus) + std::mem::take(&mut live.shared);
        self.hide_again(&gpus);
        true
    }
}

/// CPU of the unreleased workers, by node.
pub(crate) fn cpu_of_workers(live: &PlannedJob<'_>) -> BTreeMap<u32, i64> {
    let each = i64::try_from(live.job.worker.cpu_milli).unwrap_or(i64::MAX);
    let mut cpu_milli = BTreeMap::new();
    for (task, node) in live.job.tasks.iter().zip(&live.places) {
        if task.is_worker() && !task.state.is_released() {
            *cpu_milli.entry(*node).or_default() += each;
        }
    }
    cpu_milli
}
