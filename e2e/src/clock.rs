//! The only place where stories read the time: to say how long something took. Only the chaos story judges by it, and with minutes to spare.

#![expect(clippy::disallowed_methods, reason = "this is the clock")]

use time::OffsetDateTime;

/// As the daemons of this machine write it into their history.
#[must_use]
pub fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}
