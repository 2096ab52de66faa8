//! Nodes that were found for placeholders, until Muster knows them. Pure.

use super::pod::There;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A node that has come up counts as one that is about to join Muster for so long; large images take their time.
const COMING: Duration = Duration::from_secs(15 * 60);
/// The watch of nodes may lag so far behind the pods that name them: one that it does not show by then was taken away again.
const SHOWN: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub struct Coming {
    /// With their pools.
    since: BTreeMap<String, (String, Instant)>,
    /// Whose time has run out. Placeholders would go there one after the other, as nothing else does.
    late: BTreeSet<String>,
}

impl Coming {
    /// `is_known`: it has joined. `is_there`: Kubernetes has it.
    pub fn look(
        &mut self,
        pods: &[There],
        is_known: impl Fn(&str) -> bool,
        is_there: impl Fn(&str) -> bool,
        now: Instant,
    ) {
        self.late.retain(|node| !is_known(node) && is_there(node));
        for pod in pods {
            let found = pod.node.as_ref();
            if let Some(node) = found.filter(|node| !self.late.contains(*node)) {
                let coming = || (pod.pool.clone(), now);
                self.since.entry(node.clone()).or_insert_with(coming);
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

    /// How many nodes of each pool are about to join.
    #[must_use]
    pub fn of_pools(&self) -> BTreeMap<String, u32> {
        let mut counted = BTreeMap::new();
        for (pool, _) in self.since.values() {
            *counted.entry(pool.clone()).or_default() += 1;
        }
        counted
    }

    /// Whether placeholders are to keep away from it, though Muster does not know it.
    #[must_use]
    pub fn is_taken(&self, node: &str) -> bool {
        self.late.contains(node) || self.since.contains_key(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    fn found(node: &str) -> There {
        There {
            name: "a".to_owned(),
            uid: None,
            pool: "gpu".to_owned(),
            node: Some(node.to_owned()),
            is_going: false,
            has_ended: false,
            away: BTreeSet::new(),
        }
    }

    fn counted(coming: &Coming) -> u32 {
        coming.of_pools().values().sum()
    }

    #[test]
    fn a_node_that_has_not_joined_in_time_is_kept_away_from_until_it_joins_or_is_gone() {
        let start = clock::monotonic();
        let [no, yes] = [|_: &str| false, |_: &str| true];
        let all = [found("a"), found("b"), found("c")];
        let mut coming = Coming::default();
        coming.look(&all, no, yes, start);
        assert_eq!(coming.of_pools(), [("gpu".to_owned(), 3)].into());
        assert!(coming.is_taken("a"));
        let joined = |node: &str| node == "c";
        coming.look(&[], joined, yes, start + COMING / 2);
        assert_eq!(counted(&coming), 2);

        let late = start + COMING;
        coming.look(&[], joined, yes, late);
        let taken = |coming: &Coming| ["a", "b", "c"].map(|node| coming.is_taken(node));
        assert_eq!((counted(&coming), taken(&coming)), (0, [true, true, false]));
        // One that was on its way there starts nothing anew.
        coming.look(&[found("a")], joined, yes, late);
        assert_eq!((counted(&coming), taken(&coming)), (0, [true, true, false]));

        coming.look(&[], |node| node != "b", yes, late);
        assert_eq!(taken(&coming), [false, true, false]);
        coming.look(&[], no, no, late);
        assert_eq!(taken(&coming), [false; 3]);
    }

    /// Its autoscaler or its machine took it away again: another is to be asked for.
    #[test]
    fn a_node_that_is_gone_is_not_coming_once_the_watch_must_have_shown_it() {
        let start = clock::monotonic();
        let no = |_: &str| false;
        let is_there = |node: &str| node == "b";
        let all = [found("a"), found("b")];
        let mut coming = Coming::default();
        coming.look(&all, no, no, start);
        let early = start + SHOWN / 2;
        coming.look(&[], no, is_there, early);
        assert_eq!(counted(&coming), 2, "the watch may lag");
        coming.look(&[], no, is_there, start + SHOWN);
        assert_eq!(counted(&coming), 1);
        assert!(!coming.is_taken("a") && coming.is_taken("b"));
        coming.look(&[], no, no, start + COMING);
        assert!(!coming.is_taken("b"), "nor is it remembered as late");
        // Another of its name is another node.
        coming.look(&all, no, no, start + COMING);
        assert_eq!(counted(&coming), 2);
    }
}
