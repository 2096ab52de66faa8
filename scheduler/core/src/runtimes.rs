//! What follows, for jobs that could stand still, from which nodes' tasks are pods.
//!
//! A pod keeps what Kubernetes counts, GPUs, CPU and memory, for as long as it is there, and the kubelet refuses whoever is given the same. So
//! nobody else could have what such a job holds while it stands still, and it counts as one that cannot.

use crate::snapshot::{Job, Snapshot};
use muster_model::id::NodeId;
use muster_model::job::JobPhase;
use std::collections::BTreeSet;

impl Snapshot {
    /// Takes [`Job::suspends`] from jobs of whose tasks one is a pod, and from those without a task that can start as pods alone. Who stands
    /// still already may go on.
    pub fn leave_pods_out_of_turns(&mut self) {
        let pods: BTreeSet<NodeId> = self
            .nodes
            .iter()
            .filter_map(|node| node.has_pods().then_some(node.id))
            .collect();
        if pods.is_empty() {
            return;
        }
        // One that is lost for good is still among them.
        let only_pods = self.nodes.iter().all(|node| node.has_pods() || !node.up);
        for job in &mut self.jobs {
            job.suspends &= gives_back(job, &pods, only_pods);
        }
    }
}

/// Whether others can have what the job holds, or will hold, while it stands still.
fn gives_back(job: &Job, pods: &BTreeSet<NodeId>, only_pods: bool) -> bool {
    let mut there = job.held_tasks().peekable();
    if job.state.phase() == JobPhase::Suspended {
        return true;
    }
    match there.peek() {
        None => !job.pods && !only_pods,
        Some(_) => !there.any(|task| pods.contains(&task.node)),
    }
}
