//! Conversions between unsigned numbers and Postgres integers, which are signed. Constraints keep
//! columns non-negative, so a value out of range is a broken invariant.

pub(crate) fn signed(value: u64) -> i64 {
    i64::try_from(value).expect("counts stay below 2^63")
}

pub(crate) fn unsigned(value: i64) -> u64 {
    u64::try_from(value).expect("the column is never negative")
}

pub(crate) fn signed32(value: u32) -> i32 {
    i32::try_from(value).expect("sizes stay below 2^31")
}

/// Converts a number of a request. `None` if no row can have it.
pub(crate) fn checked_signed32(value: u32) -> Option<i32> {
    i32::try_from(value).ok()
}

pub(crate) fn unsigned32(value: i32) -> u32 {
    u32::try_from(value).expect("the column is never negative")
}
