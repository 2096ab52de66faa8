//! Rounds: one file a verb, for administrators, because a round holds the jobs of every tenant.

pub mod get;
pub mod list;
