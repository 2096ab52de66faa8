//! Tenants: one file per verb, for administrators.

pub mod change;
pub mod create;
pub mod delete;
pub mod list;
pub(crate) mod wire;
