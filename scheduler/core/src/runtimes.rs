//! Excludes jobs whose tasks are pods from suspension.
//!
//! A pod keeps its GPUs, CPU and memory in Kubernetes while it exists, and the kubelet rejects
//! other pods for them. Other jobs could not use the GPUs of such a job while it is suspended.

use crate::snapshot::{ClusterSnapshot, SnapshotJob};
use muster_model::id::NodeId;
use muster_model::job::JobPhase;
use std::collections::BTreeSet;

impl ClusterSnapshot {
    /// Clears [`SnapshotJob::suspends`] of jobs with a task in a pod, and of jobs without tasks
    /// that can start only as pods. Jobs that are already suspended keep it, so that they can
    /// resume.
    pub fn leave_pods_out_of_turns(&mut self) {
        let pods: BTreeSet<NodeId> = self
            .nodes
            .iter()
            .filter_map(|node| node.has_pods().then_some(node.id))
            .collect();
        if pods.is_empty() {
            return;
        }
        // Lost nodes stay in the snapshot, so only nodes that are up count.
        let only_pods = self.nodes.iter().all(|node| node.has_pods() || !node.up);
        for job in &mut self.jobs {
            job.suspends &= gives_back(job, &pods, only_pods);
        }
    }
}

/// Whether other jobs can use the job's present or future GPUs while it is suspended.
fn gives_back(job: &SnapshotJob, pods: &BTreeSet<NodeId>, only_pods: bool) -> bool {
    let mut there = job.held_tasks().peekable();
    if job.state.phase() == JobPhase::Suspended {
        return true;
    }
    match there.peek() {
        None => !job.pods && !only_pods,
        Some(_) => !there.any(|task| pods.contains(&task.node)),
    }
}
