//! The only file of this crate that reads a clock.

#![expect(
    clippy::disallowed_methods,
    reason = "the only file of the crate that may read a clock"
)]

use std::time::Instant;
use time::OffsetDateTime;

#[must_use]
pub fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

#[must_use]
pub fn monotonic() -> Instant {
    Instant::now()
}
