//! The only file of this crate that reads a clock.

#![expect(
    clippy::disallowed_methods,
    reason = "the one file of the crate that may"
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
