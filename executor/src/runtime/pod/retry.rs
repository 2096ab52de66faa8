//! Back-off of pod requests that failed: one second, doubled up to eight. It is kept per task, so
//! that a pod rejected by a quota or webhook delays no other, and an overloaded server receives
//! fewer requests.

use super::mirror::PodRequest;
use muster_model::id::TaskId;
use std::collections::BTreeMap;
use std::mem::Discriminant;
use std::time::Duration;

const FIRST_MS: u64 = 1_000;
/// Longest pause: an API server that returns is noticed within this time.
const LONGEST_MS: u64 = 8_000;

/// Failed pod requests. Times are milliseconds of the clock since boot.
#[derive(Debug, Default)]
pub struct PodRequestRetries(BTreeMap<TaskId, PodRequestBackoff>);

#[derive(Debug)]
struct PodRequestBackoff {
    /// A request of another kind for the same task is not delayed.
    request: Discriminant<PodRequest>,
    failures: u32,
    until_ms: u64,
}

impl PodRequestRetries {
    /// Forgets tasks without a pod request of the failed kind.
    pub fn retain(&mut self, requests: &[(TaskId, PodRequest)]) {
        self.0.retain(|task, backoff| {
            let mut requests = requests.iter().filter(|(requested, _)| requested == task);
            requests.any(|(_, request)| std::mem::discriminant(request) == backoff.request)
        });
    }

    #[must_use]
    pub fn is_due(&self, task: TaskId, now_ms: u64) -> bool {
        let backoff = self.0.get(&task);
        backoff.is_none_or(|backoff| now_ms >= backoff.until_ms)
    }

    pub fn failed(&mut self, task: TaskId, request: &PodRequest, now_ms: u64) {
        let backoff = self.0.entry(task).or_insert_with(|| PodRequestBackoff {
            request: std::mem::discriminant(request),
            failures: 0,
            until_ms: 0,
        });
        backoff.until_ms = now_ms + (FIRST_MS << backoff.failures.min(10)).min(LONGEST_MS);
        backoff.failures += 1;
    }

    pub fn succeeded(&mut self, task: TaskId) {
        self.0.remove(&task);
    }

    /// Returns the time until the first pod request is due; `None` if none has failed.
    #[must_use]
    pub fn rest(&self, now_ms: u64) -> Option<Duration> {
        let first_ms = self.0.values().map(|backoff| backoff.until_ms).min()?;
        Some(Duration::from_millis(first_ms.saturating_sub(now_ms)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(number: u128) -> TaskId {
        TaskId(uuid::Uuid::from_u128(number))
    }

    #[test]
    fn pauses_double_up_to_eight_seconds_per_task() {
        let mut retries = PodRequestRetries::default();
        let mut now_ms = 5_000;
        let mut pauses = Vec::new();
        for _ in 0..6 {
            assert!(retries.is_due(task(1), now_ms));
            retries.failed(task(1), &PodRequest::Delete, now_ms);
            assert!(retries.is_due(task(2), now_ms), "another's affair");
            let rest = retries.rest(now_ms).expect("one has failed");
            let rest_ms = u64::try_from(rest.as_millis()).expect("small");
            assert!(!retries.is_due(task(1), now_ms + rest_ms - 1));
            pauses.push(rest_ms);
            now_ms += rest_ms;
        }
        assert_eq!(pauses, [1_000, 2_000, 4_000, 8_000, 8_000, 8_000]);
        retries.failed(task(2), &PodRequest::Look, now_ms);
        assert_eq!(
            retries.rest(now_ms),
            Some(Duration::ZERO),
            "the first is due"
        );
        retries.succeeded(task(1));
        assert_eq!(retries.rest(now_ms), Some(Duration::from_secs(1)));
    }

    #[test]
    fn other_wish_of_the_same_task_is_not_delayed() {
        let mut retries = PodRequestRetries::default();
        let create = PodRequest::Create(Box::default());
        retries.failed(task(1), &create, 0);
        retries.retain(&[(task(1), create)]);
        assert!(!retries.is_due(task(1), 999), "it is still requested");
        retries.retain(&[(task(1), PodRequest::Delete)]);
        assert!(retries.is_due(task(1), 0));
        assert_eq!(retries.rest(0), None);
    }
}
