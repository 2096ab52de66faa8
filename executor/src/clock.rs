//! The only file of this crate that reads a clock or a random source.

use rustix::time::{ClockId, clock_gettime};

/// Milliseconds since the start of the machine, including suspended time (`CLOCK_BOOTTIME`). The
/// clock of the lease: it is the same in every process, cannot be set, and continues while a
/// machine sleeps. Real time in a trial, too.
#[must_use]
pub fn boottime_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000
        + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}

/// Milliseconds since 1970, for display and for the speeds of programs that log without a time. It
/// runs faster in a trial ([`muster_clock`]).
#[must_use]
#[allow(
    clippy::disallowed_methods,
    reason = "the only file that may read a clock"
)]
pub fn unix_ms() -> i64 {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    // Nanoseconds of an i128 reach far beyond this era.
    let ns = muster_clock::unix_ns(i128::try_from(since.as_nanos()).unwrap_or(0));
    i64::try_from(ns / 1_000_000).unwrap_or(i64::MAX)
}

/// Returns a number of the system's random source; 0 if that fails, which only costs a repetition.
#[must_use]
pub fn random() -> u64 {
    getrandom::u64().unwrap_or(0)
}

/// Returns 32 random bytes in hexadecimal, suitable as a secret.
///
/// # Errors
/// If the system's random source fails.
pub fn secret() -> std::io::Result<String> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Returns a random id.
///
/// # Errors
/// If the system's random source fails.
pub fn random_id() -> std::io::Result<uuid::Uuid> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    Ok(uuid::Builder::from_random_bytes(bytes).into_uuid())
}

/// Returns a random time between half of `whole_ms` and `whole_ms`, so that nodes that lost the
/// scheduler together do not reconnect together.
#[must_use]
pub fn jittered_ms(whole_ms: u64) -> u64 {
    let half = whole_ms / 2;
    half + random() % (whole_ms - half + 1)
}
