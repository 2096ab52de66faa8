//! Back-off after consecutive failures: one second, doubled each time, up to one minute. Failures
//! are counted per object, so that a failing object does not delay others and its number of
//! requests is bounded.

use crate::clock;
use crate::ttl_map::TtlMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// Number of consecutive failures, by the object's uid.
#[derive(Debug, Default)]
pub struct Backoff {
    failures: Mutex<TtlMap<u32>>,
}

impl Backoff {
    /// Counts a failure and returns the pause before the next attempt.
    #[must_use]
    pub fn failed(&self, uid: &str) -> Duration {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let before = failures.get(uid).copied().unwrap_or_default();
        let count = before.saturating_add(1);
        failures.insert(uid.to_owned(), count, clock::monotonic());
        pause(before)
    }

    pub fn succeeded(&self, uid: &str) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.remove(uid);
    }
}

fn pause(failures_before: u32) -> Duration {
    FIRST
        .saturating_mul(1 << failures_before.min(10))
        .min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_a_minute_and_reset_after_success() {
        let backoff = Backoff::default();
        let pauses: Vec<u64> = (0..9).map(|_| backoff.failed("a").as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(backoff.failed("b").as_secs(), 1);
        backoff.succeeded("a");
        assert_eq!(backoff.failed("a").as_secs(), 1);
    }
}
