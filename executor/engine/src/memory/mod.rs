//! Memory that tasks of one node share, and what goes through it: an anonymous file that both map, bytes in a ring there, and how the file
//! gets from one process to the other.
//!
//! This module must never know who shares memory with whom, nor what the bytes mean.

pub mod handing;
pub mod ring;
mod shared;

pub use shared::Shared;
