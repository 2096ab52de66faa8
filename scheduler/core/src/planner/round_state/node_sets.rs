//! Distinct sets of nodes on which the jobs of a round may run.

use super::index::NodeIndex;
use crate::planner::job_nodes::JobNodes;
use crate::planner::scaling_model::Kinds;
use crate::problem::NodeSet;
use crate::snapshot::{ClusterSnapshot, SnapshotJob, SnapshotNode};
use muster_model::node::GpuClass;
use muster_model::spec::NodeConstraints;
use std::collections::BTreeMap;

/// What the nodes of a job depend on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct NodeCriteria {
    constraints: NodeConstraints,
    pods: bool,
    image: bool,
    /// Indices of unfit nodes.
    unfit: Vec<u32>,
    /// Other nodes that no new job of this kind gets and that the job holds. A running job keeps
    /// its nodes when labels change or better GPUs join the cluster.
    kept: Vec<u32>,
}

/// Distinct sets of nodes of the jobs of a round.
#[derive(Debug)]
pub(crate) struct NodeSetTable {
    best: GpuClass,
    known: BTreeMap<NodeCriteria, JobNodes>,
    pub sets: Vec<NodeSet>,
}

impl NodeSetTable {
    pub(crate) fn new(snapshot: &ClusterSnapshot) -> Self {
        Self {
            best: snapshot.best_gpu_class(),
            known: BTreeMap::new(),
            sets: Vec::new(),
        }
    }

    /// Returns the nodes of a job; computes each distinct set once.
    pub(crate) fn of(
        &mut self,
        job: &SnapshotJob,
        snapshot: &ClusterSnapshot,
        (nodes, kinds): (&NodeIndex, &Kinds),
    ) -> JobNodes {
        let mut criteria = NodeCriteria {
            constraints: job.constraints.clone(),
            pods: job.pods,
            image: job.image,
            unfit: job.unfit.iter().filter_map(|&id| nodes.find(id)).collect(),
            kept: Vec::new(),
        };
        let new = self.with(&criteria, snapshot, kinds);
        criteria.kept = kept(&criteria, &new, job, nodes);
        if criteria.kept.is_empty() {
            return new;
        }
        self.with(&criteria, snapshot, kinds)
    }

    /// Returns the nodes that meet the criteria.
    fn with(
        &mut self,
        criteria: &NodeCriteria,
        snapshot: &ClusterSnapshot,
        kinds: &Kinds,
    ) -> JobNodes {
        if let Some(known) = self.known.get(criteria) {
            return known.clone();
        }
        let mut has_kind = vec![false; kinds.count()];
        let mut all = true;
        let set = NodeSet::of((0..).zip(&snapshot.nodes).map(|(index, node)| {
            let admits = criteria.admit(index, node, self.best);
            has_kind[usize::from(kinds.index(node))] |= admits;
            all &= admits;
            admits
        }));
        let found = if all {
            JobNodes::default()
        } else {
            self.sets.push(set.clone());
            JobNodes::of(set, &has_kind, self.sets.len() - 1)
        };
        self.known.insert(criteria.clone(), found.clone());
        found
    }
}

/// Nodes that a job holds and that are not among those for `new` jobs of its kind.
fn kept(criteria: &NodeCriteria, new: &JobNodes, job: &SnapshotJob, nodes: &NodeIndex) -> Vec<u32> {
    let held = job.held_tasks().filter_map(|task| nodes.find(task.node));
    let mut kept: Vec<u32> = held
        .filter(|&index| !new.contains(index) && !criteria.unfit.contains(&index))
        .collect();
    kept.sort_unstable();
    kept.dedup();
    kept
}

impl NodeCriteria {
    fn admit(&self, index: u32, node: &SnapshotNode, best: GpuClass) -> bool {
        if self.unfit.contains(&index) {
            return false;
        }
        let meets = self.constraints.unmet(&node.traits(), best).is_none();
        (meets && node.hosts(self.pods, self.image)) || self.kept.contains(&index)
    }
}
