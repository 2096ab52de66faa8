//! Nodes: one file a verb. Draining states an administrator's wish; the scheduler moves the tasks.

pub mod drain;
pub mod get;
pub mod list;
pub mod uncordon;
mod wire;
