//! Sets of nodes on which jobs may run.

use std::sync::Arc;

/// Set of nodes, as bits by index. Indices behind the last node belong to the set: a trial adds a
/// node that suits the job.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeSet(Arc<[u64]>);

impl NodeSet {
    /// Returns the set of the nodes for which `allowed` holds, in the order of their indices.
    #[must_use]
    pub fn of(allowed: impl Iterator<Item = bool>) -> Self {
        let mut words = Vec::new();
        for (index, is_in) in allowed.enumerate() {
            if index % 64 == 0 {
                words.push(u64::MAX);
            }
            if let Some(word) = words.last_mut()
                && !is_in
            {
                *word &= !(1 << (index % 64));
            }
        }
        Self(words.into())
    }

    #[must_use]
    pub fn contains(&self, node: usize) -> bool {
        self.0
            .get(node / 64)
            .is_none_or(|word| word >> (node % 64) & 1 == 1)
    }
}

/// Nodes of a job in a [`SchedulingProblem`](super::SchedulingProblem): all, or one of its sets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct AllowedNodes(Option<u32>);

impl AllowedNodes {
    pub const ALL: Self = Self(None);

    /// Returns the set with this index in `node_sets`.
    #[must_use]
    pub fn set(index: usize) -> Self {
        // A problem has at most one set per job.
        Self(u32::try_from(index).ok())
    }

    /// Returns the index of the set; `None` for all nodes.
    #[must_use]
    pub fn index(self) -> Option<usize> {
        self.0.map(|index| index as usize)
    }

    /// Whether some nodes may be excluded.
    #[must_use]
    pub fn is_restricted(self) -> bool {
        self.0.is_some()
    }

    /// Whether a node belongs to it.
    #[must_use]
    pub fn contains(self, sets: &[NodeSet], node: usize) -> bool {
        self.0
            .is_none_or(|index| sets[index as usize].contains(node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_contains_its_nodes_and_added_ones() {
        let set = NodeSet::of((0..130).map(|node| node % 3 == 0));
        for node in 0..130 {
            assert_eq!(set.contains(node), node % 3 == 0, "{node}");
        }
        assert!(set.contains(130) && set.contains(192));
        let sets = [set];
        assert!(AllowedNodes::set(0).contains(&sets, 3));
        assert!(!AllowedNodes::set(0).contains(&sets, 4));
        assert!(AllowedNodes::ALL.contains(&sets, 4));
    }
}
