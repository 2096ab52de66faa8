//! The only file of this crate that reads a clock or a random source.

use rustix::time::{ClockId, clock_gettime};

/// Milliseconds since the machine started, suspended time included (`CLOCK_BOOTTIME`). The lease is counted in it: it is the same in
/// every process of the machine, nobody can set it, and a machine that slept wakes up with its lease expired.
#[must_use]
pub fn boottime_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000
        + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}

/// Milliseconds since 1970, for people.
#[must_use]
#[allow(clippy::disallowed_methods, reason = "this is the file that may")]
pub fn unix_ms() -> i64 {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Of the system's random source; 0 should that fail, which only costs a second try.
#[must_use]
pub fn random() -> u64 {
    getrandom::u64().unwrap_or(0)
}

/// Hex of 32 random bytes that nobody can guess.
///
/// # Errors
/// If the system has no randomness to give.
pub fn secret() -> std::io::Result<String> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A share of `whole_ms` between a half and all of it, so that nodes that lost the scheduler together do not come back together.
#[must_use]
pub fn jittered_ms(whole_ms: u64) -> u64 {
    let half = whole_ms / 2;
    half + random() % (whole_ms - half + 1)
}
