//! Conversion of milliseconds to seconds.

/// Converts Unix milliseconds to seconds; the values are exact, far below 2^52.
pub(crate) fn seconds(ms: i64) -> f64 {
    ms as f64 / 1000.0
}

pub(crate) fn seconds_of(ms: u64) -> f64 {
    ms as f64 / 1000.0
}
