//! When the node's loop looks next. It is woken for what happens; beside that it looks again soon after something has, and ever more rarely
//! while nothing does, for what comes without a sound.

use std::collections::BTreeSet;
use std::time::Duration;

/// Between two looks when something has just happened.
pub const SOON_MS: u64 = 50;
/// Between two looks when nothing has for a while.
pub const LONGEST_MS: u64 = 1_000;

/// Times are those of one clock that never goes back.
#[derive(Debug)]
pub struct Pace {
    at_ms: u64,
    rest_ms: u64,
    /// What a look before its time does not make up for: one for each report that waits, so few.
    promised_ms: BTreeSet<u64>,
}

impl Default for Pace {
    /// To look at once.
    fn default() -> Self {
        Self {
            at_ms: 0,
            rest_ms: SOON_MS,
            promised_ms: BTreeSet::new(),
        }
    }
}

impl Pace {
    /// Something has happened: to look at once, and soon again for what follows from it.
    pub fn stir(&mut self) {
        (self.at_ms, self.rest_ms) = (0, SOON_MS);
    }

    /// To look at this time at the latest, and then too if it is looked earlier.
    pub fn look_by(&mut self, at_ms: u64) {
        self.promised_ms.insert(at_ms);
    }

    /// It was looked at this time, and is to be at least every `longest_ms`.
    pub fn looked(&mut self, now_ms: u64, longest_ms: u64) {
        self.promised_ms.retain(|at_ms| *at_ms > now_ms);
        self.at_ms = now_ms + self.rest_ms.min(longest_ms);
        self.rest_ms = (self.rest_ms * 2).min(LONGEST_MS);
    }

    /// Until the next look; nothing left: it is due.
    #[must_use]
    pub fn left(&self, now_ms: u64) -> Duration {
        let promised_ms = self.promised_ms.first().copied().unwrap_or(u64::MAX);
        Duration::from_millis(self.at_ms.min(promised_ms).saturating_sub(now_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_follow_ever_more_slowly_until_something_happens() {
        let mut pace = Pace::default();
        let mut now_ms = 10_000;
        let mut rests = Vec::new();
        for _ in 0..7 {
            assert!(pace.left(now_ms).is_zero());
            pace.looked(now_ms, LONGEST_MS);
            let rest_ms = u64::try_from(pace.left(now_ms).as_millis()).expect("short");
            rests.push(rest_ms);
            now_ms += rest_ms;
        }
        assert_eq!(rests, [50, 100, 200, 400, 800, 1_000, 1_000]);
        pace.looked(now_ms, 80);
        assert_eq!(pace.left(now_ms).as_millis(), 80, "as somebody needs it");
        pace.look_by(now_ms + 30);
        pace.look_by(now_ms + 60);
        assert_eq!(pace.left(now_ms).as_millis(), 30);
        pace.stir();
        assert!(pace.left(now_ms).is_zero());
        pace.looked(now_ms, LONGEST_MS);
        assert_eq!(pace.left(now_ms).as_millis(), 30, "as was promised");
    }

    #[test]
    fn a_look_that_comes_earlier_forgets_no_promised_one() {
        let mut pace = Pace::default();
        for early_ms in [10_000, 10_050, 10_150, 10_350] {
            pace.looked(early_ms, LONGEST_MS);
        }
        // 400 ms from there to the next by itself, and what has grown may go in 200.
        pace.look_by(10_550);
        // An answer comes meanwhile, which is looked at when it comes.
        pace.look_by(0);
        pace.looked(10_400, LONGEST_MS);
        assert_eq!(pace.left(10_400).as_millis(), 150, "not 800");
        pace.stir();
        pace.looked(10_540, LONGEST_MS);
        assert_eq!(pace.left(10_540).as_millis(), 10, "not 50");
        pace.looked(10_550, LONGEST_MS);
        assert_eq!(pace.left(10_550).as_millis(), 100, "it was kept");
    }
}
