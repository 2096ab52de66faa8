//! Affinity of Gandiva (Xiao et al., OSDI 2018, section 3.2): a node collects jobs of one size.
//! Such a node is divided without a remainder, and its jobs fit into each other's places.

use super::allocation_state::AllocationState;
use crate::problem::NodeAllocation;

/// Returns the node of a kind that holds the whole gang. Nodes whose jobs all have the gang's size
/// come first, then empty nodes, then the others. Among equals the node with the fewest free GPUs
/// comes first. Returns `None` if no single node holds the gang.
pub fn find(
    state: &AllocationState<'_>,
    job: usize,
    kind: u16,
    gpus: u32,
) -> Option<Vec<NodeAllocation>> {
    let labels = labels(state);
    let unit = &state.problem.jobs[job].unit;
    let nodes = state.problem.nodes.iter().zip(&labels).enumerate();
    let best = nodes
        .filter(|(_, (node, _))| node.kind == kind)
        .map(|(index, (_, label))| (index, state.tally.available(index, unit), label))
        .filter(|&(_, free, _)| free >= gpus)
        .min_by_key(|&(index, free, label)| (strangeness(*label, gpus), free, index))?;
    let node = u32::try_from(best.0).ok()?;
    Some(vec![NodeAllocation { node, gpus }])
}

/// Common size of the jobs of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NodeJobSize {
    Empty,
    Jobs(u32),
    Mixed,
}

fn labels(state: &AllocationState<'_>) -> Vec<NodeJobSize> {
    let mut labels = vec![NodeJobSize::Empty; state.problem.nodes.len()];
    for (job, of) in state.problem.jobs.iter().enumerate() {
        let parts = if of.is_movable() {
            state.given(job).unwrap_or_default()
        } else {
            &of.present
        };
        let size = parts.iter().map(|part| part.gpus).sum();
        for part in parts {
            let label = &mut labels[part.node as usize];
            *label = match *label {
                NodeJobSize::Empty => NodeJobSize::Jobs(size),
                NodeJobSize::Jobs(same) if same == size => NodeJobSize::Jobs(size),
                NodeJobSize::Jobs(_) | NodeJobSize::Mixed => NodeJobSize::Mixed,
            };
        }
    }
    labels
}

fn strangeness(label: NodeJobSize, gpus: u32) -> u8 {
    match label {
        NodeJobSize::Jobs(size) if size == gpus => 0,
        NodeJobSize::Empty => 1,
        NodeJobSize::Jobs(_) | NodeJobSize::Mixed => 2,
    }
}
