//! The data types of Muster and their state transitions: tenant, job, task, node, checkpoint, event
//! and the job document.
//!
//! Pure data. This crate must never depend on tokio, SQL, HTTP, a clock or a random source. Callers
//! pass ids, times and seeds.

/// Version of the calling program: `MUSTER_VERSION` at build time, which `scripts/dist` sets, else
/// the version of its crate.
#[macro_export]
macro_rules! version {
    () => {
        match option_env!("MUSTER_VERSION") {
            Some(version) if !version.is_empty() => version,
            _ => env!("CARGO_PKG_VERSION"),
        }
    };
}

pub mod actor;
pub mod artifact;
pub mod assignment;
pub mod checkpoint;
pub mod compute_capability;
pub mod error_chain;
pub mod event;
pub mod export;
pub mod family;
pub mod fault;
pub mod file_pattern;
pub mod forecast;
pub mod id;
pub mod idle;
pub mod job;
pub mod metric;
pub mod node;
pub mod pace;
pub mod packing;
pub mod place;
pub mod plan;
pub mod priority;
pub mod program_checkpoint;
pub mod progress;
pub mod question;
pub mod remote;
pub mod report;
pub mod schedule;
pub mod service;
pub mod spec;
pub mod study;
pub mod task;
pub mod template;
pub mod tenant;
pub mod text;
pub mod verdict;
pub mod view;
pub mod wait;
