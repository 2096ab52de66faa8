//! Tokens and their bearers: one file a verb.

pub(crate) mod administrators;
pub mod create;
pub mod list;
pub mod me;
pub mod revoke;
pub(crate) mod wire;
