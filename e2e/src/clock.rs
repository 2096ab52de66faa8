//! The only clock of the stories, for durations. Only the chaos story decides by it, with minutes
//! of margin.

#![expect(clippy::disallowed_methods, reason = "this is the clock")]

use time::OffsetDateTime;

/// Wall-clock time, as the daemons write it into histories.
#[must_use]
pub fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

/// Converts a time to seconds since 1970. An f64 keeps them to less than a microsecond.
#[must_use]
pub fn unix_s(at: OffsetDateTime) -> f64 {
    at.unix_timestamp_nanos() as f64 / 1e9
}
