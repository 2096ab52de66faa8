//! How many requests a token may make: a token bucket for each (GCRA, by `governor`).

use crate::config::Limits;
use crate::problem::{Kind, Refusal};
use governor::clock::{Clock, DefaultClock};
use governor::state::keyed::DefaultKeyedStateStore;
use governor::{Quota, RateLimiter};
use muster_model::id::TokenId;
use std::num::NonZeroU32;
use uuid::Uuid;

/// Buckets are thrown away once they are full again; looked for when so many have been made.
const SWEEP_AT: usize = 10_000;

pub struct Rate {
    limiter: RateLimiter<Uuid, DefaultKeyedStateStore<Uuid>, DefaultClock>,
    per_s: u32,
}

impl Rate {
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        let per_s = NonZeroU32::new(limits.requests_per_s).unwrap_or(NonZeroU32::MIN);
        let burst = NonZeroU32::new(limits.requests_burst).unwrap_or(per_s);
        let quota = Quota::per_second(per_s).allow_burst(burst);
        Self {
            limiter: RateLimiter::keyed(quota),
            per_s: per_s.get(),
        }
    }

    /// Takes one request from the token's bucket.
    ///
    /// # Errors
    /// When it is empty; the refusal says when it will not be.
    pub fn take(&self, token: TokenId) -> Result<(), Refusal> {
        if self.limiter.len() > SWEEP_AT {
            self.limiter.retain_recent();
        }
        self.limiter.check_key(&token.0).map_err(|until| {
            let wait = until.wait_time_from(self.limiter.clock().now());
            let detail = format!(
                "a token may make {} requests a second; try again in {} ms",
                self.per_s,
                wait.as_millis()
            );
            Refusal::new(Kind::TooManyRequests, detail).retry_after(wait.as_secs() + 1)
        })
    }
}
