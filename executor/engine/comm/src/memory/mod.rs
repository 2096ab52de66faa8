//! Memory that tasks of one node share: an anonymous file that both map, a ring of bytes in it, and
//! the transfer of the file between processes.
//!
//! This module must not depend on which tasks share memory, nor on the meaning of the bytes.

pub mod descriptor_passing;
pub mod ring;
mod shared;

pub use shared::SharedMapping;
