//! The REST control plane: users write intents and read the results.
//!
//! It writes intent only. It must never place a job, call an executor or contain SQL. It calls the
//! scheduler only to relay remote sessions. `routes.rs`
//! lists all routes, `layers.rs` all layers; each verb has a file of its own.

pub mod address;
pub mod auth;
mod body;
mod clock;
mod cluster;
mod code;
pub mod command;
mod commit_notifier;
pub mod config;
pub mod connection;
mod csv;
mod event_feed;
mod failures;
mod family;
mod files;
mod health;
mod history;
mod idempotency;
mod impersonation;
mod job;
mod layers;
mod metrics;
mod node;
pub mod openapi;
mod priority;
mod problem;
mod query;
mod question;
mod rate;
mod remote;
mod round;
mod routes;
pub mod schedule;
mod secret;
mod serde_error;
mod spelling;
mod state;
mod stream;
mod study;
mod suggestion;
mod template;
mod tenant;
mod tenant_rules;
mod token;
mod user;
mod web;

pub use problem::ProblemKind;
pub use routes::router;
pub use state::{ApiState, StartError};
