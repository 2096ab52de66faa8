//! Map of per-object values that expire after one hour without renewal. A deletion of an object is
//! not always observed, so expiry bounds the memory of a long-running process.

use std::collections::HashMap;
use std::time::{Duration, Instant};

const KEPT: Duration = Duration::from_secs(3_600);
/// Interval of the removal of expired entries, which scans the whole map.
const SWEEP: Duration = Duration::from_secs(60);

/// Map by an object's uid.
#[derive(Debug)]
pub struct TtlMap<V> {
    entries: HashMap<String, (Instant, V)>,
    swept: Option<Instant>,
}

impl<V> Default for TtlMap<V> {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
            swept: None,
        }
    }
}

impl<V> TtlMap<V> {
    pub fn insert(&mut self, uid: String, value: V, now: Instant) {
        if self
            .swept
            .is_none_or(|at| now.saturating_duration_since(at) >= SWEEP)
        {
            self.entries
                .retain(|_, (at, _)| now.saturating_duration_since(*at) < KEPT);
            self.swept = Some(now);
        }
        self.entries.insert(uid, (now, value));
    }

    #[must_use]
    pub fn get(&self, uid: &str) -> Option<&V> {
        self.entries.get(uid).map(|(_, value)| value)
    }

    /// Time of the last insertion.
    #[must_use]
    pub fn since(&self, uid: &str) -> Option<Instant> {
        self.entries.get(uid).map(|(at, _)| *at)
    }

    pub fn remove(&mut self, uid: &str) {
        self.entries.remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn entries_expire_after_an_hour() {
        let start = clock::monotonic();
        let mut recent = TtlMap::default();
        recent.insert("gone".to_owned(), 1, start);
        recent.insert("there".to_owned(), 1, start);
        let later = start + Duration::from_secs(3_000);
        recent.insert("there".to_owned(), 2, later);
        assert_eq!(recent.get("gone"), Some(&1));
        recent.insert("new".to_owned(), 1, start + KEPT);
        assert_eq!(recent.get("gone"), None);
        assert_eq!(recent.get("there"), Some(&2));
        assert_eq!(recent.since("there"), Some(later));
        assert_eq!(recent.entries.len(), 2);
    }
}
