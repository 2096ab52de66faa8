//! Recently released GPUs, as the store reports them to the live scheduler.

use super::SimulationEngine;
use muster_core::snapshot::{FreedGpu, SnapshotJob, SnapshotNode};
use muster_model::id::NodeId;
use std::collections::BTreeMap;

/// Time for which the store reports a released GPU, in milliseconds.
const TOLD_MS: i64 = 60_000;

/// Index of each node in the snapshot. The order of nodes never changes.
pub(super) fn places(nodes: &[SnapshotNode]) -> BTreeMap<NodeId, usize> {
    let numbered = nodes.iter().enumerate();
    numbered.map(|(place, node)| (node.id, place)).collect()
}

/// Nodes and GPUs that the job's tasks hold.
pub(super) fn held(job: &SnapshotJob) -> Vec<(NodeId, Vec<u32>)> {
    let tasks = job.tasks.iter().filter(|task| task.state.holds_gpus());
    tasks.map(|task| (task.node, task.gpus.clone())).collect()
}

impl SimulationEngine<'_> {
    /// Records GPUs that a task held and released.
    pub(super) fn give_back(&mut self, gone: &[(NodeId, Vec<u32>)]) {
        let at_ms = self.snapshot.now_ms;
        for (node, gpus) in gone {
            let Some(&place) = self.places.get(node) else {
                continue;
            };
            let freed = &mut self.snapshot.nodes[place].freed;
            freed.retain(|one| !gpus.contains(&one.gpu) && one.at_ms > at_ms - TOLD_MS);
            freed.extend(gpus.iter().map(|&gpu| FreedGpu { gpu, at_ms }));
        }
    }
}
