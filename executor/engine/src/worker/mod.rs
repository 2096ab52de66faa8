//! A worker: computes gradients of its part of each batch and exchanges them for new parameters. Rank 0 is the chief as well: it
//! fills the shards, reports progress, evaluates, writes checkpoints and decides when training is over.
//!
//! The loop is in [`train`]; the chief's duties are in [`chief`]; [`shards`] speaks to all shards as one.
//!
//! A worker must never know of nodes, plans or tenants' quotas.

mod batches;
mod chief;
mod link;
mod progress;
mod resume;
mod shards;
mod stop_rules;
mod train;

pub use link::{Link, Reply};
pub use shards::{Shards, Snapshot};
pub(crate) use train::assignment;
pub use train::{Ending, Surroundings, WorkerError, run};

use muster_model::assignment::TaskReport;
use std::io;

/// Where a task's reports go.
pub trait Reporter: Send + Sync {
    /// Keeps one report for the scheduler.
    ///
    /// # Errors
    /// When it cannot be kept.
    fn report(&self, report: &TaskReport) -> io::Result<()>;
}
