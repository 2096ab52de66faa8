//! Jobs on each GPU that is shared or has a suspended job.

use super::RoundState;
use crate::planner::planned_job::PlannedJob;
use crate::planner::scheduling_state::SchedulingState;
use muster_model::id::NodeId;
use std::collections::{BTreeMap, BTreeSet};

/// Jobs with a process on a GPU, running or suspended, by node and GPU index. It contains only GPUs
/// that matter for packing.
#[derive(Debug, Clone, Default)]
pub(crate) struct JobsByGpu(BTreeMap<(u32, u32), Vec<usize>>);

impl JobsByGpu {
    /// Reads every job once; empty if packing is disabled.
    pub fn of(round: &RoundState<'_>, find: impl Fn(NodeId) -> Option<u32>) -> Self {
        if round.policy.packing.is_none() {
            return Self::default();
        }
        let wanted = round
            .jobs
            .iter()
            .filter(|live| {
                live.scheduling_state == SchedulingState::Suspended || live.host.is_some()
            })
            .filter_map(PlannedJob::seat);
        let wanted: BTreeSet<(u32, u32)> = wanted.collect();
        let mut seats: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        if wanted.is_empty() {
            return Self(seats);
        }
        for (index, live) in round.jobs.iter().enumerate() {
            let own = live.job.tasks.iter().zip(live.places.iter().copied());
            let leaving = live.job.leaving.iter();
            let leaving = leaving.filter_map(|task| Some((task, find(task.node)?)));
            let there = own.chain(leaving);
            let there = there.filter(|(task, _)| !task.state.is_released());
            let gpus = there.flat_map(|(task, node)| task.gpus.iter().map(move |&gpu| (node, gpu)));
            let gpus: BTreeSet<(u32, u32)> = gpus.collect();
            for at in gpus.intersection(&wanted) {
                seats.entry(*at).or_default().push(index);
            }
        }
        Self(seats)
    }

    pub fn there(&self, at: (u32, u32)) -> &[usize] {
        self.0.get(&at).map_or(&[], Vec::as_slice)
    }
}
