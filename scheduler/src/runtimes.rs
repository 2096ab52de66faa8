//! Which nodes' tasks are pods, and what follows for jobs that could stand still.
//!
//! A pod keeps what Kubernetes counts, GPUs, CPU and memory, for as long as it is there, and the kubelet refuses whoever is given the same. So
//! nobody else could have what such a job holds while it stands still, and it counts as one that cannot.

use muster_model::id::NodeId;
use muster_model::job::{Job, JobPhase};
use muster_model::node::Node;
use muster_model::task::Task;
use std::collections::BTreeSet;

pub(crate) struct Runtimes {
    pods: BTreeSet<NodeId>,
    /// There is nothing else.
    only_pods: bool,
}

impl Runtimes {
    pub(crate) fn of(nodes: &[Node]) -> Self {
        let runtimes = nodes.iter().map(|node| (node.id, node.capacity.has_pods()));
        Self::new(runtimes.collect())
    }

    fn new(nodes: Vec<(NodeId, bool)>) -> Self {
        let pods: BTreeSet<NodeId> = nodes
            .iter()
            .filter_map(|(id, pods)| pods.then_some(*id))
            .collect();
        Self {
            only_pods: !nodes.is_empty() && pods.len() == nodes.len(),
            pods,
        }
    }

    /// Whether others can have what the job holds, or will hold, while it stands still. Who stands still already may go on.
    pub(crate) fn give_back(&self, job: &Job, tasks: &[Task]) -> bool {
        let there = tasks.iter().filter(|task| !task.state.is_released());
        let nodes: Vec<NodeId> = there.map(|task| task.node_id).collect();
        job.state.phase() == JobPhase::Suspended || self.gives(&nodes, !job.spec.pod.is_empty())
    }

    fn gives(&self, nodes: &[NodeId], needs_pods: bool) -> bool {
        match nodes {
            [] => !needs_pods && !self.only_pods,
            nodes => !nodes.iter().any(|node| self.pods.contains(node)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Runtimes;
    use muster_model::id::NodeId;
    use uuid::Uuid;

    fn node(number: u128) -> NodeId {
        NodeId(Uuid::from_u128(number))
    }

    #[test]
    fn what_a_pod_holds_is_given_to_nobody_while_it_stands_still() {
        let mixed = Runtimes::new(vec![(node(1), true), (node(2), false)]);
        assert!(mixed.gives(&[node(2), node(2)], false));
        assert!(!mixed.gives(&[node(2), node(1)], false));
        // Of who waits it is said by where it may go.
        assert!(mixed.gives(&[], false));
        assert!(!mixed.gives(&[], true));
        let pods = Runtimes::new(vec![(node(1), true)]);
        assert!(!pods.gives(&[], false));
        // Without any node nothing is known.
        assert!(Runtimes::new(Vec::new()).gives(&[], false));
    }
}
