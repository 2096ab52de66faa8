//! Users: one file a verb, for administrators.

pub mod list;
