//! Rate limits: a token bucket per key (GCRA of `governor`).

use governor::clock::{Clock, DefaultClock};
use governor::state::keyed::DefaultKeyedStateStore;
use governor::{Quota, RateLimiter};
use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Requests between two removals of full buckets.
const SWEEP_EVERY: usize = 10_000;

/// Rate limit per key.
pub struct KeyedRateLimit<Key: Hash + Eq + Clone> {
    limiter: RateLimiter<Key, DefaultKeyedStateStore<Key>, DefaultClock>,
    per_s: u32,
    taken: AtomicUsize,
}

/// The bucket is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMany {
    pub per_s: u32,
    /// Time until the bucket has a token again.
    pub wait: Duration,
}

impl<Key: Hash + Eq + Clone> KeyedRateLimit<Key> {
    #[must_use]
    pub fn new(per_s: u32, burst: u32) -> Self {
        let per_s = NonZeroU32::new(per_s).unwrap_or(NonZeroU32::MIN);
        let burst = NonZeroU32::new(burst).unwrap_or(per_s);
        Self {
            limiter: RateLimiter::keyed(Quota::per_second(per_s).allow_burst(burst)),
            per_s: per_s.get(),
            taken: AtomicUsize::new(0),
        }
    }

    /// Takes one request from the bucket of the key.
    ///
    /// # Errors
    /// If the bucket is empty.
    pub fn take(&self, key: &Key) -> Result<(), TooMany> {
        if self.taken.fetch_add(1, Ordering::Relaxed) % SWEEP_EVERY == SWEEP_EVERY - 1 {
            self.limiter.retain_recent();
        }
        self.limiter.check_key(key).map_err(|until| TooMany {
            per_s: self.per_s,
            wait: until.wait_time_from(self.limiter.clock().now()),
        })
    }
}
