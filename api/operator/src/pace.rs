//! Throttle of status writes that may wait: progress and queue position. With hundreds of jobs
//! these are most of the writes, because each scheduling round changes all positions. Without a
//! throttle they would delay urgent requests to Kubernetes' API.

use crate::recent::Recent;
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
pub struct Pace {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Reservations that are not used yet, by the object's uid.
    given: Recent<Instant>,
    /// Next free time.
    next: Option<Instant>,
    /// Moving average of the duration of a write.
    takes: Duration,
}

impl Pace {
    /// Returns the time until the object may write, and reserves that time for it. A return value
    /// of zero uses the reservation.
    pub fn turn(&self, uid: &str, now: Instant) -> Duration {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let given = state.given.get(uid).copied();
        let given = given.filter(|turn| now.saturating_duration_since(*turn) < KEPT);
        let turn = if let Some(given) = given {
            given
        } else {
            let turn = state.next.map_or(now, |next| next.max(now));
            state.next = Some(turn + (state.takes / AT_ONCE).clamp(LEAST, MOST));
            turn
        };
        if turn <= now {
            state.given.remove(uid);
        } else {
            state.given.insert(uid.to_owned(), turn, now);
        }
        turn.saturating_duration_since(now)
    }

    /// Records a failed write. It counts as slow even if the server rejected it at once, because
    /// the server is overloaded.
    pub fn failed(&self, took: Duration) {
        self.took(took.max(AT_ONCE * MOST));
    }

    /// Records the duration of a write.
    pub fn took(&self, took: Duration) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.takes = (state.takes * 7 + took) / 8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn write_times_follow_write_duration_and_stay_reserved() {
        let now = clock::monotonic();
        let pace = Pace::default();
        for _ in 0..100 {
            pace.took(ms(40));
        }
        let waits: Vec<u128> = ["a", "b", "c", "b", "d"]
            .map(|uid| pace.turn(uid, now).as_millis())
            .into();
        // Half of a write's duration, because two run concurrently; `b` asks again.
        let near = |wait: u128, wanted: u128| wait.abs_diff(wanted) <= 2;
        assert!(
            near(waits[1], 20) && near(waits[2], 40) && near(waits[4], 60),
            "{waits:?}"
        );
        assert_eq!((waits[0], waits[3]), (0, waits[1]));
        // A used reservation; the next one is after those that still wait.
        assert_eq!(pace.turn("b", now + ms(25)), Duration::ZERO);
        assert!(near(pace.turn("b", now + ms(25)).as_millis(), 55));
        // `c` has not used its reservation in time.
        assert_eq!(pace.turn("c", now + ms(2_000)), Duration::ZERO);
        assert!(near(pace.turn("c", now + ms(2_000)).as_millis(), 20));
    }

    #[test]
    fn rejected_writes_increase_the_interval() {
        let now = clock::monotonic();
        let pace = Pace::default();
        let mut before = LEAST;
        for _ in 0..10 {
            pace.failed(ms(1));
            let apart = (pace.state.lock().unwrap().takes / AT_ONCE).clamp(LEAST, MOST);
            assert!(apart > before, "{apart:?}");
            before = apart;
        }
        assert_eq!(pace.turn("a", now), Duration::ZERO);
        assert_eq!(pace.turn("b", now), before);
    }

    #[test]
    fn interval_shrinks_with_fast_writes_and_saves_no_idle_time() {
        let now = clock::monotonic();
        let pace = Pace::default();
        pace.took(Duration::from_secs(60));
        assert_eq!(pace.turn("a", now), Duration::ZERO);
        assert_eq!(pace.turn("b", now), MOST);
        for _ in 0..200 {
            pace.took(ms(1));
        }
        let later = now + Duration::from_secs(60);
        let waits = ["c", "d", "e"].map(|uid| pace.turn(uid, later));
        assert_eq!(waits, [Duration::ZERO, LEAST, 2 * LEAST]);
    }
}
