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
