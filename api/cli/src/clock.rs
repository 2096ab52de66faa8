//! The only file of this crate that reads the clock or the system's randomness.
#![allow(clippy::disallowed_methods)]

use anyhow::anyhow;
use time::OffsetDateTime;

#[must_use]
pub fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

/// Returns 24 random bytes in hex.
///
/// # Errors
/// If the system returns no random bytes.
pub fn secret() -> anyhow::Result<String> {
    let mut bytes = [0_u8; 24];
    getrandom::fill(&mut bytes)
        .map_err(|error| anyhow!("the system gives no random bytes: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Returns the CPU time of this thread in seconds. Work of other threads does not count.
#[must_use]
pub fn thread_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    // The values stay far below 2^52.
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
