//! A worker computes gradients of its part of each batch and exchanges them for new parameters. The
//! worker of rank 0 is the coordinator (`chief`) as well. It initialises the shards, reports
//! progress, evaluates, writes checkpoints and decides when training ends.
//!
//! The training loop is in [`train`], the coordinator's duties are in [`chief`]. The loop uses the
//! other workers only through [`exchange`], which has four implementations:
//!
//! - [`servers`]: PS shards; [`shards`] treats all shards of a job as one.
//! - [`peers`]: workers without shards (all-reduce and averaging).
//! - [`hogwild`]: the threads of one worker.
//! - [`single_device`]: a single worker whose state stays on its GPU.
//!
//! Invariant: a worker knows no nodes, plans or quotas.

mod batches;
mod chief;
mod clip;
mod context;
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
mod single_device;
mod stop_rules;
mod suspension;
mod task_set;
mod train;

pub use clip::OwnClip;
pub use context::{ExitReason, RosterSource, WorkerContext};
pub use error::WorkerError;
pub use head::StepMetadata;
pub use link::{Reply, ShardLink};
pub use peers::{
    GradientRanges, MeanScale, PriorityAllReduce, PriorityStepOutcome, PriorityStepWork, RangeSum,
};
pub use shards::{
    Eager, GradientSink, ParameterFetch, PartitionedPass, ReshardingResult, ShardAddress,
    ShardFailure, ShardSnapshot, Shards, SnapshotStream, SnapshotStreamError, first_view,
};
pub use train::run;

use muster_model::assignment::TaskReport;
use std::io;

/// Receives a task's reports.
pub trait Reporter: Send + Sync {
    /// Stores one report for the scheduler.
    ///
    /// # Errors
    /// When the report cannot be stored.
    fn report(&self, report: &TaskReport) -> io::Result<()>;
}
