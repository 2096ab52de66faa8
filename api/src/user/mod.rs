//! Users: one file per verb, for administrators.

pub mod list;
