//! The only file of this crate that reads a clock or draws at random; everything else is given times, ids and secrets.

#![expect(
    clippy::disallowed_methods,
    reason = "the one file of the crate that may"
)]

use std::time::Instant;
use time::OffsetDateTime;
use uuid::Uuid;

/// Microseconds, as Postgres keeps them, so that what is answered now reads the same later.
#[must_use]
pub fn now() -> OffsetDateTime {
    let now = OffsetDateTime::now_utc();
    now.replace_nanosecond(now.nanosecond() / 1000 * 1000)
        .expect("less than a second")
}

#[must_use]
pub fn monotonic() -> Instant {
    Instant::now()
}

/// A new id; ids sort by the time at which they were made.
#[must_use]
pub fn new_id() -> Uuid {
    Uuid::now_v7()
}

/// 32 random bytes: too many to guess.
///
/// # Errors
/// When the operating system has none to give.
pub fn secret() -> Result<[u8; 32], getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}
