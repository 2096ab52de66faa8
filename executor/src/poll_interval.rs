//! Poll interval of the node loop, with exponential back-off: 50 ms after an event, up to 1 s
//! without one. Polls cover changes that cause no notification.

use std::collections::BTreeSet;
use std::time::Duration;

/// Poll interval directly after an event.
pub const SOON_MS: u64 = 50;
/// Longest poll interval.
pub const LONGEST_MS: u64 = 1_000;

/// Time of the next poll. All times are of one monotonic clock.
#[derive(Debug)]
pub struct PollTimer {
    at_ms: u64,
    interval_ms: u64,
    /// Deadlines that an earlier poll does not cancel. Few: one per waiting report.
    deadlines_ms: BTreeSet<u64>,
}

impl Default for PollTimer {
    /// The first poll is due at once.
    fn default() -> Self {
        Self {
            at_ms: 0,
            interval_ms: SOON_MS,
            deadlines_ms: BTreeSet::new(),
        }
    }
}

impl PollTimer {
    /// Makes a poll due at once and resets the interval, after an event.
    pub fn reset(&mut self) {
        (self.at_ms, self.interval_ms) = (0, SOON_MS);
    }

    /// Requires a poll at `at_ms` at the latest. An earlier poll does not cancel it.
    pub fn poll_by(&mut self, at_ms: u64) {
        self.deadlines_ms.insert(at_ms);
    }

    /// Records a poll at `now_ms`. The next one is due after the interval, at most `longest_ms`.
    pub fn polled(&mut self, now_ms: u64, longest_ms: u64) {
        self.deadlines_ms.retain(|at_ms| *at_ms > now_ms);
        self.at_ms = now_ms + self.interval_ms.min(longest_ms);
        self.interval_ms = (self.interval_ms * 2).min(LONGEST_MS);
    }

    /// Returns the time until the next poll; zero if it is due.
    #[must_use]
    pub fn left(&self, now_ms: u64) -> Duration {
        let deadlines_ms = self.deadlines_ms.first().copied().unwrap_or(u64::MAX);
        Duration::from_millis(self.at_ms.min(deadlines_ms).saturating_sub(now_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poll_interval_doubles_until_an_event() {
        let mut timer = PollTimer::default();
        let mut now_ms = 10_000;
        let mut rests = Vec::new();
        for _ in 0..7 {
            assert!(timer.left(now_ms).is_zero());
            timer.polled(now_ms, LONGEST_MS);
            let interval_ms = u64::try_from(timer.left(now_ms).as_millis()).expect("short");
            rests.push(interval_ms);
            now_ms += interval_ms;
        }
        assert_eq!(rests, [50, 100, 200, 400, 800, 1_000, 1_000]);
        timer.polled(now_ms, 80);
        assert_eq!(timer.left(now_ms).as_millis(), 80, "as somebody needs it");
        timer.poll_by(now_ms + 30);
        timer.poll_by(now_ms + 60);
        assert_eq!(timer.left(now_ms).as_millis(), 30);
        timer.reset();
        assert!(timer.left(now_ms).is_zero());
        timer.polled(now_ms, LONGEST_MS);
        assert_eq!(timer.left(now_ms).as_millis(), 30, "as was promised");
    }

    #[test]
    fn earlier_poll_keeps_later_deadlines() {
        let mut timer = PollTimer::default();
        for early_ms in [10_000, 10_050, 10_150, 10_350] {
            timer.polled(early_ms, LONGEST_MS);
        }
        // The next regular poll is 400 ms away; a report may be sent in 200 ms.
        timer.poll_by(10_550);
        // An answer arrives meanwhile and causes a poll at once.
        timer.poll_by(0);
        timer.polled(10_400, LONGEST_MS);
        assert_eq!(timer.left(10_400).as_millis(), 150, "not 800");
        timer.reset();
        timer.polled(10_540, LONGEST_MS);
        assert_eq!(timer.left(10_540).as_millis(), 10, "not 50");
        timer.polled(10_550, LONGEST_MS);
        assert_eq!(timer.left(10_550).as_millis(), 100, "it was kept");
    }
}
