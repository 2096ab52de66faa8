//! The only file of this crate that reads a clock or generates random values. All other code
//! receives times, ids and secrets as parameters.

#![expect(
    clippy::disallowed_methods,
    reason = "the only file of the crate that may"
)]

use std::time::{Instant, SystemTime};
use time::OffsetDateTime;
use uuid::Uuid;

/// Current time in whole microseconds, the precision of Postgres, so that it reads back unchanged.
/// It runs faster in a trial ([`muster_clock`]).
///
/// # Panics
/// If the clock shows a year above 9999.
#[must_use]
pub fn now() -> OffsetDateTime {
    let ns = muster_clock::unix_ns(OffsetDateTime::now_utc().unix_timestamp_nanos());
    OffsetDateTime::from_unix_timestamp_nanos(ns / 1000 * 1000).expect("a date of this era")
}

/// Real time in a trial, too.
#[must_use]
pub fn monotonic() -> Instant {
    Instant::now()
}

/// Time of the file system's clock, for ages of files.
#[must_use]
pub fn system() -> SystemTime {
    SystemTime::now()
}

/// Returns a new id; ids sort by the time of their creation.
#[must_use]
pub fn new_id() -> Uuid {
    Uuid::now_v7()
}

/// Returns 32 random bytes.
///
/// # Errors
/// If the operating system has no randomness.
pub fn secret() -> Result<[u8; 32], getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}
