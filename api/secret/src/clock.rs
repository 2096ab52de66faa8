//! The only file of this crate that reads the clock.
#![allow(clippy::disallowed_methods)]

use std::time::Instant;

/// Monotonic time, for the age of keys.
pub(crate) fn instant() -> Instant {
    Instant::now()
}
