//! Tenants: one file a verb, for administrators.

pub mod change;
pub mod create;
pub mod list;
pub(crate) mod wire;
