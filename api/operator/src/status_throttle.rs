//! Throttle of status writes that may wait: progress and queue position. With hundreds of jobs
//! these are most of the writes, because each scheduling round changes all positions. Without a
//! throttle they would delay urgent requests to Kubernetes' API.

use crate::ttl_map::TtlMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Number of concurrent writes that the throttle aims at, given the recent duration of a write.
const AT_ONCE: u32 = 2;
const LEAST: Duration = Duration::from_millis(5);
const MOST: Duration = Duration::from_millis(500);
/// Time after which an unused reservation expires.
const KEPT: Duration = Duration::from_secs(1);

/// Assigns write times in FIFO order. The interval grows with the response time of the API server.
#[derive(Debug, Default)]
pub struct StatusThrottle {
    state: Mutex<ThrottleState>,
}

#[derive(Debug, Default)]
struct ThrottleState {
    /// Reservations that are not used yet, by the object's uid.
    reserved: TtlMap<Instant>,
    /// Next free time.
    next: Option<Instant>,
    /// Moving average of the duration of a write.
    write_duration: Duration,
}

impl StatusThrottle {
    /// Returns the time until the object may write, and reserves that time for it. A return value
    /// of zero uses the reservation.
    pub fn reserve(&self, uid: &str, now: Instant) -> Duration {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let reserved = state.reserved.get(uid).copied();
        let reserved = reserved.filter(|at| now.saturating_duration_since(*at) < KEPT);
        let at = if let Some(reserved) = reserved {
            reserved
        } else {
            let at = state.next.map_or(now, |next| next.max(now));
            state.next = Some(at + (state.write_duration / AT_ONCE).clamp(LEAST, MOST));
            at
        };
        if at <= now {
            state.reserved.remove(uid);
        } else {
            state.reserved.insert(uid.to_owned(), at, now);
        }
        at.saturating_duration_since(now)
    }

    /// Records a failed write. It counts as slow even if the server rejected it at once, because
    /// the server is overloaded.
    pub fn failed(&self, took: Duration) {
        self.took(took.max(AT_ONCE * MOST));
    }

    /// Records the duration of a write.
    pub fn took(&self, took: Duration) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.write_duration = (state.write_duration * 7 + took) / 8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn is_near(wait_ms: u128, wanted_ms: u128) -> bool {
        wait_ms.abs_diff(wanted_ms) <= 2
    }

    #[test]
    fn write_times_follow_write_duration_and_stay_reserved() {
        let now = clock::monotonic();
        let throttle = StatusThrottle::default();
        for _ in 0..100 {
            throttle.took(ms(40));
        }
        let waits: Vec<u128> = ["a", "b", "c", "b", "d"]
            .map(|uid| throttle.reserve(uid, now).as_millis())
            .into();
        // Half of a write's duration, because two run concurrently; `b` asks again.
        assert!(
            is_near(waits[1], 20) && is_near(waits[2], 40) && is_near(waits[4], 60),
            "{waits:?}"
        );
        assert_eq!((waits[0], waits[3]), (0, waits[1]));
        // A used reservation; the next one is after those that still wait.
        assert_eq!(throttle.reserve("b", now + ms(25)), Duration::ZERO);
        assert!(is_near(throttle.reserve("b", now + ms(25)).as_millis(), 55));
        // `c` has not used its reservation in time.
        assert_eq!(throttle.reserve("c", now + ms(2_000)), Duration::ZERO);
        assert!(is_near(
            throttle.reserve("c", now + ms(2_000)).as_millis(),
            20
        ));
    }

    #[test]
    fn rejected_writes_increase_the_interval() {
        let now = clock::monotonic();
        let throttle = StatusThrottle::default();
        let mut before = LEAST;
        for _ in 0..10 {
            throttle.failed(ms(1));
            let apart =
                (throttle.state.lock().unwrap().write_duration / AT_ONCE).clamp(LEAST, MOST);
            assert!(apart > before, "{apart:?}");
            before = apart;
        }
        assert_eq!(throttle.reserve("a", now), Duration::ZERO);
        assert_eq!(throttle.reserve("b", now), before);
    }

    #[test]
    fn interval_shrinks_with_fast_writes_and_saves_no_idle_time() {
        let now = clock::monotonic();
        let throttle = StatusThrottle::default();
        throttle.took(Duration::from_secs(60));
        assert_eq!(throttle.reserve("a", now), Duration::ZERO);
        assert_eq!(throttle.reserve("b", now), MOST);
        for _ in 0..200 {
            throttle.took(ms(1));
        }
        let later = now + Duration::from_secs(60);
        let waits = ["c", "d", "e"].map(|uid| throttle.reserve(uid, later));
        assert_eq!(waits, [Duration::ZERO, LEAST, 2 * LEAST]);
    }
}
