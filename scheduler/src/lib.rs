//! Scheduler daemon: scheduling rounds and node sessions.
//!
//! A round loads one consistent snapshot, asks `muster-core` for a plan, checks and commits it. A
//! node session sends a node its whole assignment and records its reports.
//!
//! This crate decides nothing. It must not know how a job is sized or placed (`muster-core` does),
//! and it contains no SQL (`muster-store` does).

pub mod clock;
mod compute;
pub mod config;
pub mod erasure;
mod external_gpu_use;
pub mod forecast;
pub mod health;
pub mod horizon;
pub mod leader;
pub mod lease;
pub mod metrics;
pub mod node_speed;
pub mod notifications;
pub mod passes;
pub mod question;
pub mod remote;
pub mod retention;
pub mod retry;
pub mod round;
pub mod session;
pub mod study;
pub mod tls;
pub mod translate;
