//! Rounds: one file per verb. For administrators, because a round contains the jobs of every
//! tenant.

pub mod get;
pub mod list;
