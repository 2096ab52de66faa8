//! A worker: computes gradients of its part of each batch and exchanges them for new parameters. Rank 0 is the chief as well: it
//! fills the shards, reports progress, evaluates, writes checkpoints and decides when training is over.
//!
//! The loop is in [`train`]; the chief's duties are in [`chief`]; the loop knows of the others only what [`exchange`] says, and
//! [`servers`] is that exchange by PS shards, to which [`shards`] speaks as to one; [`peers`] is it without them, [`hogwild`] among the
//! threads of one worker, and [`alone`] that of one that has nobody to exchange with and leaves everything on its GPU.
//!
//! A worker must never know of nodes, plans or tenants' quotas.

mod alone;
mod batches;
mod chief;
mod clip;
mod error;
mod exchange;
mod head;
mod hogwild;
mod link;
mod model;
mod noise;
mod origin;
mod pacer;
mod peers;
mod progress;
mod resume;
mod saver;
mod servers;
mod shards;
mod stop_rules;
mod train;
mod turns;

pub use clip::OwnClip;
pub use error::WorkerError;
pub use head::Head;
pub use link::{Link, Reply};
pub use peers::{ByNeed, Outcome, Ranges, Scale, Sum, Work};
pub use shards::{
    Address, Draw, DrawError, Eager, Fetch, Moved, Pass, Ready, ShardFailure, Shards, Snapshot,
    first_view,
};
pub use train::{Ending, RosterSource, Surroundings, run};

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
