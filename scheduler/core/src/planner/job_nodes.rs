//! Nodes on which the tasks of a job may run: its constraints, its need of pods, and the nodes that
//! lack something its program needs.

use super::round_state::NodeIndex;
use super::scaling_model::Kinds;
use crate::problem::{AllowedNodes, NodeSet};
use crate::snapshot::{ClusterSnapshot, SnapshotJob, SnapshotNode};
use muster_model::node::GpuClass;
use muster_model::spec::{NodeConstraints, UnmetConstraint};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Nodes of one job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct JobNodes {
    /// The nodes; `None` for all.
    set: Option<NodeSet>,
    /// Whether a kind has a node of the set, by kind; `None` for all.
    kinds: Option<Arc<[bool]>>,
    /// The same set in the problem.
    pub index: AllowedNodes,
}

impl JobNodes {
    pub(crate) fn contains(&self, node: u32) -> bool {
        let set = self.set.as_ref();
        set.is_none_or(|set| set.contains(node as usize))
    }

    pub(crate) fn has_kind(&self, kind: usize) -> bool {
        let kinds = self.kinds.as_deref();
        kinds.is_none_or(|kinds| kinds.get(kind).copied().unwrap_or(true))
    }
}

/// What the nodes of a job depend on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct NodeCriteria {
    constraints: NodeConstraints,
    pods: bool,
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
            unfit: job.unfit.iter().filter_map(|&id| nodes.find(id)).collect(),
            kept: Vec::new(),
        };
        criteria.kept = self.kept(&criteria, job, snapshot, nodes);
        if let Some(known) = self.known.get(&criteria) {
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
            JobNodes {
                set: Some(set),
                kinds: Some(has_kind.into()),
                index: AllowedNodes::set(self.sets.len() - 1),
            }
        };
        self.known.insert(criteria, found.clone());
        found
    }

    fn kept(
        &self,
        criteria: &NodeCriteria,
        job: &SnapshotJob,
        snapshot: &ClusterSnapshot,
        nodes: &NodeIndex,
    ) -> Vec<u32> {
        let held = job.held_tasks().filter_map(|task| nodes.find(task.node));
        let mut kept: Vec<u32> = held
            .filter(|&index| !criteria.admit(index, &snapshot.nodes[index as usize], self.best))
            .filter(|index| !criteria.unfit.contains(index))
            .collect();
        kept.sort_unstable();
        kept.dedup();
        kept
    }
}

impl NodeCriteria {
    fn admit(&self, index: u32, node: &SnapshotNode, best: GpuClass) -> bool {
        if self.unfit.contains(&index) {
            return false;
        }
        let meets = unmet(&self.constraints, node, best).is_none();
        (meets && (node.has_pods() || !self.pods)) || self.kept.contains(&index)
    }
}

/// Returns the first constraint that excludes a node. A node without GPUs can hold PS shards, so
/// constraints on GPUs do not exclude it.
pub(crate) fn unmet(
    constraints: &NodeConstraints,
    node: &SnapshotNode,
    best: GpuClass,
) -> Option<UnmetConstraint> {
    let unmet = constraints.unmet(&node.traits(), best)?;
    let is_of_gpus = matches!(
        unmet,
        UnmetConstraint::GpuKinds | UnmetConstraint::GpuMemory
    );
    (node.gpus > 0 || !is_of_gpus).then_some(unmet)
}
