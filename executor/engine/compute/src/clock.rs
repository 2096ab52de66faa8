//! The engine's only clock. It serves rates and time limits. Code that decides on results (data
//! order, updates, content of checkpoints) does not use it.

#![expect(clippy::disallowed_methods, reason = "the engine's designated file")]

use std::time::Instant;

/// Returns the present monotonic time.
#[must_use]
pub fn now() -> Instant {
    Instant::now()
}
