//! The engine's only clock. Everything that decides what is computed (data order, updates, checkpoints' content) is free of it;
//! it serves rates, time limits and the file names of nothing.

#![expect(clippy::disallowed_methods, reason = "the engine's designated file")]

use std::time::Instant;

/// A monotonic instant.
#[must_use]
pub fn now() -> Instant {
    Instant::now()
}
