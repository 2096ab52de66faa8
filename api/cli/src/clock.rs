//! The only file of this crate that reads the clock or the system's randomness.
#![allow(clippy::disallowed_methods)]

use anyhow::anyhow;
use time::OffsetDateTime;

#[must_use]
pub fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

/// 24 random bytes in hex.
///
/// # Errors
/// When the system has no randomness to give.
pub fn secret() -> anyhow::Result<String> {
    let mut bytes = [0_u8; 24];
    getrandom::fill(&mut bytes)
        .map_err(|error| anyhow!("the system gives no random bytes: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Seconds that this thread has worked: what another thread does beside it does not count.
#[must_use]
pub fn thread_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    // Seconds of work stay far below 2^52.
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
