//! The only clock of the stories, for durations. Only the chaos story decides by it, with minutes
//! of margin.

#![expect(clippy::disallowed_methods, reason = "this is the clock")]

use time::OffsetDateTime;

/// Wall-clock time, as the daemons write it into histories.
#[must_use]
pub fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}
