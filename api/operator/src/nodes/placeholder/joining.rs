//! Nodes that were found for placeholders, until they join Muster. Pure.

use super::pod::PlaceholderPod;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Time in which a new node counts as about to join Muster; large images take long to pull.
const COMING: Duration = Duration::from_secs(15 * 60);
/// Maximum lag of the node watch behind the pods that name its nodes. A node that the watch does
/// not show by then was removed.
const SHOWN: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub struct JoiningNodes {
    /// First observation of each node, with its pool.
    since: BTreeMap<String, (String, Instant)>,
    /// Nodes that did not join in time. Without an exclusion, one placeholder after the other would
    /// be placed there, because nothing else is.
    late: BTreeSet<String>,
}

impl JoiningNodes {
    /// Updates the state from the placeholders. `is_known` tells whether the node has joined
    /// Muster, `is_there` whether Kubernetes has it.
    pub fn update(
        &mut self,
        pods: &[PlaceholderPod],
        is_known: impl Fn(&str) -> bool,
        is_there: impl Fn(&str) -> bool,
        now: Instant,
    ) {
        self.late.retain(|node| !is_known(node) && is_there(node));
        for pod in pods {
            let found = pod.node.as_ref();
            if let Some(node) = found.filter(|node| !self.late.contains(*node)) {
                self.since
                    .entry(node.clone())
                    .or_insert_with(|| (pod.pool.clone(), now));
            }
        }
        let late = &mut self.late;
        self.since.retain(|node, (_, since)| {
            let age = now.saturating_duration_since(*since);
            let is_gone = age >= SHOWN && !is_there(node);
            if is_known(node) || is_gone {
                return false;
            }
            let is_late = age >= COMING;
            if is_late {
                tracing::warn!(node, "a node has not joined Muster: is its executor well?");
                late.insert(node.clone());
            }
            !is_late
        });
    }

    /// Returns the number of nodes of each pool that are about to join.
    #[must_use]
    pub fn of_pools(&self) -> BTreeMap<String, u32> {
        let mut counted = BTreeMap::new();
        for (pool, _) in self.since.values() {
            *counted.entry(pool.clone()).or_default() += 1;
        }
        counted
    }

    /// Whether placeholders must avoid the node although Muster does not know it.
    #[must_use]
    pub fn is_taken(&self, node: &str) -> bool {
        self.late.contains(node) || self.since.contains_key(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    fn found(node: &str) -> PlaceholderPod {
        PlaceholderPod {
            name: "a".to_owned(),
            uid: None,
            pool: "gpu".to_owned(),
            node: Some(node.to_owned()),
            is_going: false,
            has_ended: false,
            away: BTreeSet::new(),
        }
    }

    fn counted(joining: &JoiningNodes) -> u32 {
        joining.of_pools().values().sum()
    }

    fn taken(joining: &JoiningNodes) -> [bool; 3] {
        ["a", "b", "c"].map(|node| joining.is_taken(node))
    }

    fn no(_: &str) -> bool {
        false
    }

    fn yes(_: &str) -> bool {
        true
    }

    #[test]
    fn late_node_is_avoided_until_it_joins_or_is_deleted() {
        let start = clock::monotonic();
        let all = [found("a"), found("b"), found("c")];
        let mut joining = JoiningNodes::default();
        joining.update(&all, no, yes, start);
        assert_eq!(joining.of_pools(), [("gpu".to_owned(), 3)].into());
        assert!(joining.is_taken("a"));
        joining.update(&[], |node| node == "c", yes, start + COMING / 2);
        assert_eq!(counted(&joining), 2);

        let late = start + COMING;
        joining.update(&[], |node| node == "c", yes, late);
        assert_eq!(
            (counted(&joining), taken(&joining)),
            (0, [true, true, false])
        );
        // A placeholder that was already bound to the node does not restart the time.
        joining.update(&[found("a")], |node| node == "c", yes, late);
        assert_eq!(
            (counted(&joining), taken(&joining)),
            (0, [true, true, false])
        );

        joining.update(&[], |node| node != "b", yes, late);
        assert_eq!(taken(&joining), [false, true, false]);
        joining.update(&[], no, no, late);
        assert_eq!(taken(&joining), [false; 3]);
    }

    /// The autoscaler or the provider has removed the node, so another one must be requested.
    #[test]
    fn deleted_node_stops_counting_after_the_watch_lag() {
        let start = clock::monotonic();
        let all = [found("a"), found("b")];
        let mut joining = JoiningNodes::default();
        joining.update(&all, no, no, start);
        let early = start + SHOWN / 2;
        joining.update(&[], no, |node| node == "b", early);
        assert_eq!(counted(&joining), 2, "the watch may lag");
        joining.update(&[], no, |node| node == "b", start + SHOWN);
        assert_eq!(counted(&joining), 1);
        assert!(!joining.is_taken("a") && joining.is_taken("b"));
        joining.update(&[], no, no, start + COMING);
        assert!(!joining.is_taken("b"), "nor is it remembered as late");
        // A new node with the same name counts as another node.
        joining.update(&all, no, no, start + COMING);
        assert_eq!(counted(&joining), 2);
    }
}
