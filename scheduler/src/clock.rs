//! The only file of this crate that reads clocks or random numbers; all other code receives them as
//! arguments.
#![allow(clippy::disallowed_methods)]

use time::OffsetDateTime;
use uuid::Uuid;

/// Wall-clock time, as stored. It runs faster in a trial ([`muster_clock`]).
///
/// # Panics
/// If the clock shows a year above 9999.
#[must_use]
pub fn now() -> OffsetDateTime {
    let ns = muster_clock::unix_ns(OffsetDateTime::now_utc().unix_timestamp_nanos());
    OffsetDateTime::from_unix_timestamp_nanos(ns).expect("a date of this era")
}

/// Monotonic time, for durations; real time in a trial, too.
#[must_use]
pub fn instant() -> std::time::Instant {
    std::time::Instant::now()
}

/// Milliseconds since `began`.
#[must_use]
pub fn elapsed_ms(began: std::time::Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// New identifier; identifiers sort by creation.
#[must_use]
pub fn id() -> Uuid {
    Uuid::now_v7()
}

/// 32 random bytes in hex, by which the tasks of one revision authenticate each other.
///
/// # Panics
/// If the system has no source of random numbers.
#[must_use]
pub fn secret() -> String {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).expect("the system gives random bytes");
    bytes
        .iter()
        .fold(String::with_capacity(64), |mut hex, byte| {
            use std::fmt::Write as _;
            let _ = write!(hex, "{byte:02x}");
            hex
        })
}
