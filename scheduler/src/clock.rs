//! The only file of this crate that may read the clock or the system's randomness; everything else is given both.
#![allow(clippy::disallowed_methods)]

use time::OffsetDateTime;
use uuid::Uuid;

/// Wall-clock time, as stored.
#[must_use]
pub fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

/// For measuring how long something took.
#[must_use]
pub fn instant() -> std::time::Instant {
    std::time::Instant::now()
}

/// How long ago `began` was.
#[must_use]
pub fn elapsed_ms(began: std::time::Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// A fresh identifier that sorts by creation.
#[must_use]
pub fn id() -> Uuid {
    Uuid::now_v7()
}

/// 32 random bytes in hex: what the tasks of one revision know each other by.
///
/// # Panics
/// When the system has no source of randomness, without which no secret is one.
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
