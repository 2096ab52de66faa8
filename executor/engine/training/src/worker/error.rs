//! Errors of a worker.

use crate::checkpoint::CheckpointError;
use muster_comm::compress::PlanError;
use muster_comm::fabric::FabricError;
use muster_comm::wire::WireError;
use muster_compute::cuda::DeviceError;
use muster_compute::data::{BatchSizeError, DatasetError};
use muster_compute::model::BuildError;
use muster_model::id::JobId;
use std::io;

/// Errors that end a worker.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    #[error("could not load the data set")]
    Dataset(#[from] DatasetError),
    #[error("could not cut the data set into batches")]
    Batches(#[from] BatchSizeError),
    #[error("could not build the network")]
    Network(#[from] BuildError),
    #[error("could not use the device")]
    Device(#[from] DeviceError),
    #[error("step {step} was checkpointed before, but no sound checkpoint is on the disk")]
    NothingToResume { step: u64 },
    #[error("the checkpoint of step {step} is of another job document")]
    OtherJob { step: u64 },
    #[error("the checkpoint of step {step} of job {job} does not fit this job's document: {what}")]
    OtherOrigin { job: JobId, step: u64, what: String },
    #[error("training diverged: the loss of step {step} is not finite")]
    Diverged { step: u64 },
    #[error("the workers hold different parameters before step {step}")]
    Drifted { step: u64 },
    #[error("could not handle a checkpoint")]
    Checkpoint(#[from] CheckpointError),
    #[error("PS shard {index} refused this worker")]
    Refused {
        index: usize,
        #[source]
        source: WireError,
    },
    #[error(
        "PS shards hold other bits after handing over at step {step} than before: {before:016x} became {after:016x}"
    )]
    MovedBadly { step: u64, before: u64, after: u64 },
    #[error(
        "engine.hogwild_threads is {threads}, and this task computes on {device}: only on the CPU can threads share parameters, so it is to be left out"
    )]
    NotOnTheCpu { threads: u32, device: String },
    #[error("could not exchange with the other workers")]
    Peers(#[from] FabricError),
    #[error("could not make the codecs of the exchange")]
    Codecs(#[from] PlanError),
    #[error("could not keep a report")]
    Report(#[from] io::Error),
}

impl WorkerError {
    /// Whether a restart may succeed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Dataset(_)
            | Self::Batches(_)
            | Self::Network(_)
            | Self::Codecs(_)
            | Self::NothingToResume { .. }
            | Self::OtherJob { .. }
            | Self::OtherOrigin { .. }
            | Self::NotOnTheCpu { .. }
            | Self::Diverged { .. } => false,
            Self::Checkpoint(error) => {
                error.is_passing() || matches!(error, CheckpointError::Fenced { .. })
            }
            Self::Device(_)
            | Self::Refused { .. }
            | Self::MovedBadly { .. }
            | Self::Drifted { .. }
            | Self::Peers(_)
            | Self::Report(_) => true,
        }
    }
}
