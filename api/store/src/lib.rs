//! Access to Postgres, the only source of truth of a cluster. No other crate contains SQL.
//!
//! Functions take a `&mut PgConnection`. The caller owns the transaction, and ids and `now` are
//! parameters. This crate contains no policy, places nothing and calls no other service. States
//! change only through the model's `apply`. Every change appends its event in the same transaction.
//!
//! Locks are taken in one order: jobs by id, then tasks by id, then nodes by id. This prevents
//! deadlocks between writers. [`StoreError::is_retryable`] reports a deadlock or a conflict that
//! Postgres still finds.

pub mod after;
mod array;
pub mod artifact;
pub mod assignment;
pub mod checkpoint;
mod checkpoint_request;
pub mod cluster_load;
pub mod code;
pub mod duration_history;
pub mod edit;
pub mod erasure;
mod error;
pub mod event;
pub mod family;
pub mod fault;
pub mod forecast;
pub mod horizon;
pub mod idempotency;
mod int_convert;
pub mod job;
pub mod leader;
pub mod limit;
pub mod log;
pub mod membership;
pub mod metric;
pub mod migrate;
pub mod node;
pub mod notify;
pub mod objective;
pub mod origin;
pub mod packing;
pub mod page;
pub mod plan;
pub mod pool;
pub mod priority_class;
pub mod program_checkpoint;
pub mod progress;
pub mod question;
pub mod remote_session;
pub mod report;
pub mod restored;
pub mod retention;
pub mod round;
pub mod schedule;
pub mod secret;
mod service;
pub mod study;
pub mod task;
pub mod template;
pub mod tenant;
pub mod tenant_scope;
pub mod token;
pub mod user;

pub use error::StoreError;
pub use sqlx::PgConnection;
