//! Priority classes: ranges of job priorities, with their roles and tenants. One file per verb.

pub mod delete;
pub mod list;
pub mod set;
