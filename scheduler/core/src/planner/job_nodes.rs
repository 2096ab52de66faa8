//! Nodes on which the tasks of a job may run: its constraints, its need of pods, and the nodes that
//! lack something its program needs.

use crate::problem::{AllowedNodes, NodeSet};
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
    /// Returns the set with this index in the problem. `kinds` says which kinds have a node of it.
    pub(crate) fn of(set: NodeSet, kinds: &[bool], index: usize) -> Self {
        Self {
            set: Some(set),
            kinds: Some(kinds.into()),
            index: AllowedNodes::set(index),
        }
    }

    pub(crate) fn contains(&self, node: u32) -> bool {
        let set = self.set.as_ref();
        set.is_none_or(|set| set.contains(node as usize))
    }

    pub(crate) fn has_kind(&self, kind: usize) -> bool {
        let kinds = self.kinds.as_deref();
        kinds.is_none_or(|kinds| kinds.get(kind).copied().unwrap_or(true))
    }
}
