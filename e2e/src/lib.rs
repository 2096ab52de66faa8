//! Stories of the whole system on real processes: a cluster as `muster up` runs it, used through
//! REST, with parts killed on purpose.
//!
//! A story uses only the interfaces of users and administrators: REST, the command line, processes
//! and files. It never reads the store.

pub mod clock;
pub mod cluster;
pub mod fleet;
pub mod kubelet;
pub mod kubernetes;
pub mod played;
pub mod pods;
pub mod processes;
pub mod runtime;
pub mod story;
pub mod study;
pub mod tools;
pub mod usage;
