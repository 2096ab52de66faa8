//! Whole-system stories on real processes: a cluster as `muster up` runs it, driven through REST, with parts killed on purpose.
//!
//! A story knows what a user or an administrator could know: REST, the command line, processes and files. It never looks into the store.

pub mod clock;
pub mod cluster;
pub mod fleet;
pub mod kubelet;
pub mod kubernetes;
pub mod pods;
pub mod processes;
pub mod runtime;
pub mod story;
pub mod study;
pub mod usage;
