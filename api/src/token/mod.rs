//! Tokens: one file per verb.

pub(crate) mod administrators;
pub mod create;
pub mod list;
pub mod me;
pub mod revoke;
pub mod revoke_user;
pub(crate) mod wire;
