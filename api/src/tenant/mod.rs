//! Tenants: one file a verb, for administrators.

pub mod change;
pub mod create;
pub mod delete;
pub mod list;
pub(crate) mod wire;
