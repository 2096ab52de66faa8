//! Postgres: the only truth of a cluster, and the only crate that speaks SQL.
//!
//! Functions work on a `&mut PgConnection`; the caller owns the transaction, and ids and `now` are parameters. This crate must
//! never know why: it holds no policy, places nothing and calls nobody. States change only through the model's `apply`, and
//! every change appends its event in the same transaction.
//!
//! Locks are taken in the order jobs (by id), tasks (by id), nodes (by id), so that writers do not wait on each other in a
//! circle; where Postgres still finds one, [`StoreError::is_retryable`] says so.

pub mod assignment;
pub mod checkpoint;
pub mod demand;
pub mod edit;
pub mod erasure;
mod error;
pub mod event;
pub mod fault;
pub mod forecast;
pub mod horizon;
pub mod idempotency;
pub mod job;
pub mod leader;
pub mod limit;
pub mod log;
pub mod membership;
pub mod migrate;
pub mod node;
mod number;
pub mod origin;
pub mod packing;
pub mod page;
pub mod past;
pub mod plan;
pub mod pool;
pub mod progress;
pub mod question;
pub mod report;
pub mod restored;
pub mod retention;
pub mod round;
pub mod scope;
pub mod study;
pub mod task;
pub mod tenant;
pub mod token;
pub mod user;
pub mod wake;

pub use error::StoreError;
pub use sqlx::PgConnection;
