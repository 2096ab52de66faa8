//! Back-off of wishes that failed: one second, doubled up to eight. It is kept per task, so that a
//! pod rejected by a quota or webhook delays no other, and an overloaded server receives fewer
//! requests.

use super::mirror::Wish;
use muster_model::id::TaskId;
use std::collections::BTreeMap;
use std::mem::Discriminant;
use std::time::Duration;

const FIRST_MS: u64 = 1_000;
/// Longest pause: an API server that returns is noticed within this time.
const LONGEST_MS: u64 = 8_000;

/// Failed wishes. Times are milliseconds of the clock since boot.
#[derive(Debug, Default)]
pub struct Again(BTreeMap<TaskId, Pause>);

#[derive(Debug)]
struct Pause {
    /// A wish of another kind for the same task is not delayed.
    wish: Discriminant<Wish>,
    failures: u32,
    until_ms: u64,
}

impl Again {
    /// Forgets tasks without a wish of the failed kind.
    pub fn retain(&mut self, wishes: &[(TaskId, Wish)]) {
        let is_wished = |task: &TaskId, pause: &Pause| {
            let mut wishes = wishes.iter().filter(|(wished, _)| wished == task);
            wishes.any(|(_, wish)| std::mem::discriminant(wish) == pause.wish)
        };
        self.0.retain(|task, pause| is_wished(task, pause));
    }

    #[must_use]
    pub fn is_due(&self, task: TaskId, now_ms: u64) -> bool {
        let pause = self.0.get(&task);
        pause.is_none_or(|pause| now_ms >= pause.until_ms)
    }

    pub fn failed(&mut self, task: TaskId, wish: &Wish, now_ms: u64) {
        let pause = self.0.entry(task).or_insert_with(|| Pause {
            wish: std::mem::discriminant(wish),
            failures: 0,
            until_ms: 0,
        });
        pause.until_ms = now_ms + (FIRST_MS << pause.failures.min(10)).min(LONGEST_MS);
        pause.failures += 1;
    }

    pub fn succeeded(&mut self, task: TaskId) {
        self.0.remove(&task);
    }

    /// Returns the time until the first wish is due; `None` if none has failed.
    #[must_use]
    pub fn rest(&self, now_ms: u64) -> Option<Duration> {
        let first_ms = self.0.values().map(|pause| pause.until_ms).min()?;
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
        let mut again = Again::default();
        let mut now_ms = 5_000;
        let mut pauses = Vec::new();
        for _ in 0..6 {
            assert!(again.is_due(task(1), now_ms));
            again.failed(task(1), &Wish::Delete, now_ms);
            assert!(again.is_due(task(2), now_ms), "another's affair");
            let rest = again.rest(now_ms).expect("one has failed");
            let rest_ms = u64::try_from(rest.as_millis()).expect("small");
            assert!(!again.is_due(task(1), now_ms + rest_ms - 1));
            pauses.push(rest_ms);
            now_ms += rest_ms;
        }
        assert_eq!(pauses, [1_000, 2_000, 4_000, 8_000, 8_000, 8_000]);
        again.failed(task(2), &Wish::Look, now_ms);
        assert_eq!(again.rest(now_ms), Some(Duration::ZERO), "the first is due");
        again.succeeded(task(1));
        assert_eq!(again.rest(now_ms), Some(Duration::from_secs(1)));
    }

    #[test]
    fn other_wish_of_the_same_task_is_not_delayed() {
        let mut again = Again::default();
        let create = Wish::Create(Box::default());
        again.failed(task(1), &create, 0);
        again.retain(&[(task(1), create)]);
        assert!(!again.is_due(task(1), 999), "it is still wished for");
        again.retain(&[(task(1), Wish::Delete)]);
        assert!(again.is_due(task(1), 0));
        assert_eq!(again.rest(0), None);
    }
}
