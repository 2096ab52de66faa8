//! The scheduler's shell: it wakes, loads one consistent snapshot, asks `muster-core` for a plan, checks it and commits it; and it
//! holds the sessions of the nodes, telling each its whole assignment and recording what it reports.
//!
//! It decides nothing itself. It must never know how a job is sized or placed (`muster-core` does), nor write SQL (`muster-store` does).

pub mod clock;
mod compute;
pub mod config;
pub mod erasure;
pub mod forecast;
pub mod health;
pub mod horizon;
pub mod leader;
pub mod lease;
pub mod metrics;
mod others;
pub mod passes;
pub mod question;
pub mod retention;
pub mod retry;
pub mod round;
pub mod session;
pub mod study;
pub mod tls;
pub mod translate;
pub mod wakes;
