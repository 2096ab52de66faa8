//! The node daemon: it dials the scheduler, is told its whole desired set of tasks, carries it out and reports what it observes.
//!
//! The same binary is the shim (`muster-executor shim`), the parent of one task's process, which outlives a killed daemon.
//! This crate must never touch Postgres, choose a node or a GPU, or know what a task computes: a task is a process that is
//! given a folder, appends lines to `events.jsonl` in it and stops on SIGTERM. Users' own programs know of none of this: `command` becomes
//! them, and `tracking` writes their reports for them.

mod allowance;
pub mod clock;
pub mod command;
pub mod config;
pub mod daemon;
pub mod device;
mod disk;
pub mod driver;
pub mod environment;
mod erasure;
pub mod error;
pub mod events;
pub mod folder;
pub mod launch;
pub mod lease;
pub mod ledger;
pub mod limits;
pub mod log;
pub mod meter;
pub mod metrics;
pub mod node;
mod pace;
pub mod process;
pub mod reconcile;
mod removal;
pub mod report;
pub mod runtime;
mod said;
pub mod session;
pub mod shim;
pub mod space;
pub mod task_file;
pub mod task_user;
pub mod tracking;
pub mod watcher;

use muster_opener as opener;
