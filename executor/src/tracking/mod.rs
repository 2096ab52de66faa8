//! Tracking server for users' programs: a part of MLflow's tracking REST interface, and the warning
//! before a stop. It listens on the loopback for process tasks and on the node's address for pods.
//!
//! A token identifies the task of a program. Logged values become lines of that task's
//! `events.jsonl` and take the way of every report. They wait on the disk while the control plane
//! is unreachable, and are shipped, acknowledged and fenced like those of the engine. The server
//! shares only the task folders with the node loop.

mod app;
mod artifacts;
mod beat;
mod buffer;
mod checkpoints;
mod error;
mod lines;
mod message;
mod metric;
mod model;
mod models;
mod objective;
mod run;
mod secrets;
mod series;
mod server;
mod starts;
mod tensorboard;
mod tracked;

pub(crate) use lines::MetricLineReader;
pub use server::Tracking;
pub use tracked::TrackedRuns;
