//! Detailed record of a simulation for measures and pictures: GPUs held over time and the duration
//! of each decision.

use crate::engine::node_number;
use crate::outcome::SimulationOutcome;
use muster_model::id::NodeId;
use std::collections::BTreeMap;

/// Result of [`crate::simulate_recorded`].
#[derive(Debug)]
pub struct SimulationRecord {
    pub outcome: SimulationOutcome,
    /// Ordered by their ends.
    pub holds: Vec<GpuHold>,
    /// Duration of every round, in seconds.
    pub decision_s: Vec<f64>,
}

/// GPUs of one node that a job holds, from the start order until its last task has exited. `job`
/// and `node` are indices in the scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuHold {
    pub job: usize,
    pub node: u32,
    pub gpus: u32,
    pub from_ms: i64,
    pub to_ms: i64,
}

/// Open allocation of each job, and all closed allocations.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    /// Start time, and GPUs per node.
    open: Vec<Option<(i64, BTreeMap<u32, u32>)>>,
    pub closed: Vec<GpuHold>,
}

impl Holds {
    pub(crate) fn of(jobs: usize) -> Self {
        Self {
            open: vec![None; jobs],
            closed: Vec::new(),
        }
    }

    /// `tasks` gives node and number of GPUs of every task. Closes an allocation that is still
    /// open.
    pub(crate) fn open(
        &mut self,
        job: usize,
        now_ms: i64,
        tasks: impl Iterator<Item = (NodeId, usize)>,
    ) {
        self.close(job, now_ms);
        let mut nodes = BTreeMap::new();
        for (node, gpus) in tasks.filter(|&(_, gpus)| gpus > 0) {
            let gpus = u32::try_from(gpus).unwrap_or(u32::MAX);
            *nodes.entry(node_number(node)).or_insert(0) += gpus;
        }
        self.open[job] = Some((now_ms, nodes));
    }

    /// Does nothing if the job holds nothing.
    pub(crate) fn close(&mut self, job: usize, now_ms: i64) {
        let Some((from_ms, nodes)) = self.open[job].take() else {
            return;
        };
        self.closed
            .extend(nodes.into_iter().map(|(node, gpus)| GpuHold {
                job,
                node,
                gpus,
                from_ms,
                to_ms: now_ms,
            }));
    }
}
