//! Interface between the training loop and the exchange of gradients and parameters.
//!
//! Invariant: the loop does not know whether PS shards or workers hold the parameters, nor which
//! members join or leave between two steps.

use super::context::ExitReason;
use super::error::WorkerError;
use super::link::Reply;
use super::model::WorkerModel;
use super::progress::StepTimes;
use super::shards::ShardSnapshot;
use crate::checkpoint::{CheckpointArena, Contents, ContentsSource, LossProgress, TaskCounts};
use muster_comm::log;
use muster_comm::wire::WireError;
use muster_comm::wire::metadata::StepStats;
use muster_model::error_chain::chain;

/// State with which the exchange is initialised.
#[derive(Debug)]
pub struct ExchangeStart {
    pub step: u64,
    pub updates: u64,
    pub contents: Contents<CheckpointArena>,
    pub curve: LossProgress,
    /// A checkpoint of this step is stored.
    pub on_disk: bool,
    /// The state belongs to another job, and this job has not evaluated it yet.
    pub is_copy: bool,
}

/// A worker's side of the exchange, after it has joined.
pub(super) trait WorkerExchange {
    /// Coordinator: initialises the exchange with `start` and copies its parameters into the model.
    ///
    /// # Errors
    /// [`WorkerStepError`].
    fn begin(
        &mut self,
        model: &mut WorkerModel,
        start: &ExchangeStart,
    ) -> Result<(), WorkerStepError>;

    /// Other workers: waits for the present parameters. Returns the next step.
    ///
    /// # Errors
    /// [`WorkerStepError`].
    fn receive(&mut self, model: &mut WorkerModel) -> Result<ExchangeAnswer, WorkerStepError>;

    /// Computes this worker's gradients of `step` and waits for the next parameters. The exchange
    /// starts the computation, because it can send gradients while the others are computed.
    ///
    /// # Errors
    /// [`WorkerStepError`].
    fn step(
        &mut self,
        model: &mut WorkerModel,
        step: u64,
    ) -> Result<(ExchangeAnswer, StepTimes), WorkerStepError>;

    /// Coordinator: copies the state between two steps for a checkpoint. Reuses the memory of
    /// `into` where it is large enough.
    ///
    /// # Errors
    /// [`WorkerStepError`].
    fn snapshot(
        &mut self,
        model: &mut WorkerModel,
        into: Contents,
    ) -> Result<ShardSnapshot, WorkerStepError>;

    /// Coordinator: like [`Self::snapshot`], for a checkpoint that is written while training
    /// continues. If it returns a source, the source fills the contents later, with the state of
    /// this moment.
    ///
    /// # Errors
    /// [`WorkerStepError`].
    fn snapshot_from(
        &mut self,
        model: &mut WorkerModel,
        into: Contents,
    ) -> Result<(ShardSnapshot, Option<Box<dyn ContentsSource>>), WorkerStepError> {
        Ok((self.snapshot(model, into)?, None))
    }

    /// Coordinator: ends training. No other worker takes part afterwards, and the model holds the
    /// final parameters.
    ///
    /// # Errors
    /// [`WorkerStepError`].
    fn conclude(&mut self, _: &mut WorkerModel) -> Result<(), WorkerStepError> {
        Ok(())
    }

    /// Whether a snapshot must be announced one step ahead, so that it contains the workers'
    /// residuals.
    fn needs_notice(&self) -> bool {
        false
    }

    /// Coordinator: announces a snapshot at the beginning of `step`, one step after the next.
    fn notice(&mut self, _step: u64) {}

    /// Coordinator: suspends all workers in the time slice `turn`, after the first step in which
    /// all of them learn of it. 0 suspends none.
    fn hold(&mut self, turn: u64);

    /// Excludes a suspension before the next step from the training time.
    fn went_on(&mut self) {}

    /// Returns the gradient noise scale in examples, where the exchange measures it.
    fn noise_scale(&self) -> Option<f64> {
        None
    }

    /// Returns the present numbers of workers and PS shards.
    fn layout(&self) -> TaskCounts;

    /// Coordinator: ends training for all workers and leaves. The model must be stored.
    fn done(self: Box<Self>);

    /// Leaves in order on request; the other workers can continue.
    fn goodbye(self: Box<Self>);
}

/// Next action of a worker.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum ExchangeAnswer {
    /// The parameters are in place; the worker continues with `step`. `stats` are those of all
    /// workers in the previous step, and state whether all suspend now.
    Parameters { step: u64, stats: StepStats },
    /// The step cannot be completed because a worker has left; `lost` if it left without a goodbye.
    Interrupted { lost: bool },
    /// The coordinator has ended training.
    Finished,
    /// No answer arrived within the time limit.
    GaveUp,
}

impl From<Reply> for ExchangeAnswer {
    fn from(reply: Reply) -> Self {
        match reply {
            Reply::Parameters { clock, stats } => Self::Parameters { step: clock, stats },
            Reply::Interrupted { lost, .. } => Self::Interrupted { lost },
            // This worker is no longer in the view, or the step lacks a worker that left in order.
            Reply::Moved | Reply::Gone | Reply::Norm { .. } | Reply::Absent => {
                Self::Interrupted { lost: false }
            }
            Reply::Finished => Self::Finished,
            Reply::GaveUp => Self::GaveUp,
        }
    }
}

/// Error of a worker's exchange or of the coordinator's duties.
#[derive(Debug)]
pub(super) enum WorkerStepError {
    /// On the connection to the PS shard of this index.
    Shard(usize, WireError),
    Own(WorkerError),
}

impl<E: Into<WorkerError>> From<E> for WorkerStepError {
    fn from(error: E) -> Self {
        Self::Own(error.into())
    }
}

impl From<(usize, WireError)> for WorkerStepError {
    fn from((index, error): (usize, WireError)) -> Self {
        Self::Shard(index, error)
    }
}

impl WorkerStepError {
    /// Converts the error to the end of the task. A refusal by a shard is an error of this task; a
    /// broken connection is a lost peer.
    ///
    /// # Errors
    /// The task's own error.
    pub fn ending(self) -> Result<ExitReason, WorkerError> {
        match self {
            Self::Own(error) => Err(error),
            Self::Shard(
                index,
                source @ (WireError::Refused(_)
                | WireError::Frame(_)
                | WireError::PayloadLength { .. }),
            ) => Err(WorkerError::Refused { index, source }),
            Self::Shard(index, error) => {
                log::line(format_args!("lost PS shard {index}: {}", chain(&error)));
                Ok(ExitReason::PeerLost)
            }
        }
    }
}
