//! GPUs of a node that external workloads use. Kubernetes reports only their number, and a plan
//! names GPUs by index. This module chooses the indices, which have no other meaning on such nodes.

use muster_model::id::NodeId;
use muster_model::job::{AfterStop, JobState};
use muster_store::plan::LoadedJob;
use std::collections::{BTreeMap, BTreeSet};

/// GPUs of a node that Muster's jobs use or need.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NodeGpuUse {
    held: BTreeSet<u32>,
    /// GPUs of tasks that are suspended there or still to start. External use is assigned to them
    /// last.
    kept: BTreeSet<u32>,
}

/// GPU use of every node on which a job has tasks.
pub(crate) fn uses(jobs: &[LoadedJob]) -> BTreeMap<NodeId, NodeGpuUse> {
    let mut uses: BTreeMap<NodeId, NodeGpuUse> = BTreeMap::new();
    for job in jobs {
        let tasks = job.tasks.iter().chain(&job.leaving);
        for task in tasks.filter(|task| !task.state.is_released()) {
            let of_node = uses.entry(task.node_id).or_default();
            if task.state.holds_gpus() {
                of_node.held.extend(&task.gpus);
            } else {
                of_node.kept.extend(&task.gpus);
            }
        }
        if let JobState::Stopping {
            then: AfterStop::Move { to, .. },
        } = &job.job.state
        {
            for seat in to {
                uses.entry(seat.node).or_default().kept.extend(&seat.gpus);
            }
        }
    }
    uses
}

/// Indices that stand for `taken` externally used GPUs: the last unused ones, so that they stay the
/// same in each round. Returns fewer if jobs hold the rest.
pub(crate) fn external_gpus(gpus: u32, taken: u32, uses: Option<&NodeGpuUse>) -> Vec<u32> {
    let mut free: Vec<u32> = (0..gpus)
        .rev()
        .filter(|gpu| !uses.is_some_and(|uses| uses.held.contains(gpu)))
        .collect();
    // The sort is stable: within each half the last indices come first.
    free.sort_by_key(|gpu| uses.is_some_and(|uses| uses.kept.contains(gpu)));
    free.truncate(taken as usize);
    free.sort_unstable();
    free
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn external_use_gets_last_unused_gpus() {
        assert!(external_gpus(4, 0, None).is_empty());
        assert_eq!(external_gpus(4, 1, None), [3]);
        let uses = NodeGpuUse {
            held: [0, 3].into(),
            kept: [2].into(),
        };
        assert_eq!(external_gpus(6, 2, Some(&uses)), [4, 5]);
        assert_eq!(external_gpus(6, 3, Some(&uses)), [1, 4, 5]);
        assert_eq!(
            external_gpus(6, 4, Some(&uses)),
            [1, 2, 4, 5],
            "who stands still waits"
        );
        assert_eq!(
            external_gpus(6, 9, Some(&uses)),
            [1, 2, 4, 5],
            "who runs keeps what it holds"
        );
    }
}
