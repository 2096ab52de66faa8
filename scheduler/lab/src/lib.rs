//! Comparison of policies on traces: the rules of published simulators, the live rules, measures,
//! pictures and reports.
//!
//! The commands `muster simulate`, `muster compare` and `muster export-trace` use it. The scheduler
//! daemon does not. Under the live rules it runs the simulator of `muster_sim`. It must not contain
//! a policy or a second planner. It reads no clock and no random source: the same workload, cluster
//! and policy give the same run, except for the durations that the caller's clock measures.

pub mod bound;
pub mod compare;
pub mod contestants;
pub mod live;
pub mod measure;
pub mod picture;
pub mod reference_simulators;
pub mod run;
#[cfg(test)]
mod testing;
pub mod trace;
#[cfg(test)]
#[path = "../tests/traces/mod.rs"]
mod traces;

pub use muster_core as core;
