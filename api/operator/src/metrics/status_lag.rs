//! Status lag: age of job changes that the objects do not show yet.

use super::objects::WatchedObject;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// Changes that are not shown yet, by the object's uid.
#[derive(Debug, Default)]
pub(super) struct StatusLag {
    changes: HashMap<String, UnshownChanges>,
}

/// Changes of one object.
#[derive(Debug, Clone, Copy)]
struct UnshownChanges {
    /// Lower bound for the oldest change that is not shown yet.
    oldest: Instant,
    newest: Instant,
}

impl StatusLag {
    pub fn changed(&mut self, uid: String, now: Instant) {
        let changes = self.changes.entry(uid).or_insert(UnshownChanges {
            oldest: now,
            newest: now,
        });
        changes.newest = changes.newest.max(now);
    }

    /// Marks the changes before `began`, the start of a reconciliation, as shown.
    pub fn shown(&mut self, uid: &str, began: Instant) {
        let Some(changes) = self.changes.get_mut(uid) else {
            return;
        };
        if changes.newest <= began {
            self.changes.remove(uid);
        } else {
            changes.oldest = changes.oldest.max(began);
        }
    }

    pub fn gone(&mut self, uid: &str) {
        self.changes.remove(uid);
    }

    /// Returns the age of the oldest change. Discards changes of objects that no longer exist.
    pub fn age(&mut self, all: &[WatchedObject], now: Instant) -> Duration {
        let there: HashSet<&str> = all.iter().map(|object| object.uid.as_str()).collect();
        self.changes.retain(|uid, _| there.contains(uid.as_str()));
        let oldest = self.changes.values().map(|changes| changes.oldest).min();
        oldest.map_or(Duration::ZERO, |at| now.saturating_duration_since(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn oldest_change_counts_until_a_later_reconciliation_succeeds() {
        let start = clock::monotonic();
        let at = |s: u64| start + Duration::from_secs(s);
        let mut lag = StatusLag::default();
        let all = ["a", "b"].map(|uid| WatchedObject {
            kind: "TrainingJob",
            uid: uid.to_owned(),
            phase: "Running",
            is_outdated: false,
        });
        assert_eq!(lag.age(&all, at(9)).as_secs(), 0);
        lag.changed("a".to_owned(), at(10));
        lag.changed("b".to_owned(), at(12));
        lag.changed("a".to_owned(), at(15));
        assert_eq!(lag.age(&all, at(20)).as_secs(), 10);
        // Started before all changes, and between two of them.
        lag.shown("a", at(9));
        assert_eq!(lag.age(&all, at(20)).as_secs(), 10);
        lag.shown("a", at(14));
        assert_eq!(lag.age(&all, at(20)).as_secs(), 8, "of b");
        lag.shown("b", at(12));
        assert_eq!(
            lag.age(&all, at(20)).as_secs(),
            6,
            "not before the reconciliation of 14"
        );
        lag.shown("a", at(16));
        assert_eq!(lag.age(&all, at(20)).as_secs(), 0);
        lag.changed("deleted meanwhile".to_owned(), at(17));
        assert_eq!(lag.age(&all, at(20)).as_secs(), 0);
        assert!(lag.changes.is_empty());
    }
}
