//! The node daemon. It dials the scheduler, receives the complete desired task set of its node,
//! carries it out and reports what it observes.
//!
//! The same binary is the shim (`muster-executor shim`), the parent process of one task. The shim
//! outlives the daemon.
//!
//! Architecture invariant: this crate never accesses Postgres and never chooses a node or a GPU. It
//! does not know what a task computes. A task is a process that receives a folder, appends lines to
//! `events.jsonl` in it and stops on SIGTERM. Users' own programs follow none of these rules:
//! `command` replaces itself by the program, and `tracking` writes its reports.

pub mod activity;
mod allowance;
pub mod artifact;
pub mod clock;
mod code_cache;
pub mod command;
pub mod config;
pub mod daemon;
pub mod device;
mod disk;
pub mod disk_monitor;
pub mod driver;
pub mod environment;
mod erasure;
pub mod error;
pub mod events;
pub mod folder;
mod folder_size;
mod gc;
pub mod image;
pub mod isolation;
pub mod launch;
pub mod lease;
pub mod ledger;
pub mod limits;
pub mod log;
mod log_once;
mod loop_event;
pub mod metrics;
pub mod node;
mod ownership;
mod poll_interval;
pub mod process;
pub mod reconcile;
pub mod remote;
pub mod report;
pub mod runtime;
mod secret_client;
pub mod session;
pub mod shim;
pub mod task_file;
pub mod task_user;
pub mod tracking;
pub mod usage_sampler;
pub mod watched_program;
pub mod watcher;

use muster_opener as opener;
