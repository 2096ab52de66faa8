//! Families of jobs: what is known of their speeds. One file per verb.

pub mod forget;
pub mod list;
