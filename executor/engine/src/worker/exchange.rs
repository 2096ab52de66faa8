//! What the training loop asks of the exchange: how everybody's gradients become everybody's new parameters.
//!
//! The loop must not know whether PS shards or the workers themselves hold the parameters, nor who comes and goes between two steps.

use super::error::WorkerError;
use super::link::Reply;
use super::model::Model;
use super::progress::StepTimes;
use super::resume::Start;
use super::shards::Snapshot;
use super::train::Ending;
use crate::checkpoint::{Contents, Layout, Source};
use crate::log;
use crate::wire::WireError;
use crate::wire::hello::StepStats;

/// How this worker takes part in training, once it has joined.
pub(super) trait Exchange {
    /// Chief: `start` is what everybody trains from. Copies its parameters into the model.
    ///
    /// # Errors
    /// [`Trouble`].
    fn begin(&mut self, model: &mut Model, start: &Start) -> Result<(), Trouble>;

    /// Every other worker: waits for the parameters that the others train from, and the step that comes next.
    ///
    /// # Errors
    /// [`Trouble`].
    fn receive(&mut self, model: &mut Model) -> Result<Answer, Trouble>;

    /// Computes this worker's gradients of `step` and waits for the parameters to go on with. Computing is the exchange's to call,
    /// as it may send what is ready while the rest is computed.
    ///
    /// # Errors
    /// [`Trouble`].
    fn step(&mut self, model: &mut Model, step: u64) -> Result<(Answer, StepTimes), Trouble>;

    /// Chief: the state that a checkpoint keeps, between two steps, copied into memory that is there already where it is large enough.
    ///
    /// # Errors
    /// [`Trouble`].
    fn snapshot(&mut self, model: &mut Model, into: Contents) -> Result<Snapshot, Trouble>;

    /// Chief: the same for a checkpoint that is written while training goes on. Where a source comes with it, the contents are filled by
    /// that, with the state of this moment whatever follows.
    ///
    /// # Errors
    /// [`Trouble`].
    fn snapshot_from(
        &mut self,
        model: &mut Model,
        into: Contents,
    ) -> Result<(Snapshot, Option<Box<dyn Source>>), Trouble> {
        Ok((self.snapshot(model, into)?, None))
    }

    /// Chief: training is over. Nobody else takes part any more, and the model holds everybody's final parameters.
    ///
    /// # Errors
    /// [`Trouble`].
    fn conclude(&mut self, _: &mut Model) -> Result<(), Trouble> {
        Ok(())
    }

    /// Whether a snapshot has to be announced a step ahead, lest it lack what others hold back.
    fn needs_notice(&self) -> bool {
        false
    }

    /// Chief: the state at the beginning of `step`, which comes after the next one, is to be kept.
    fn notice(&mut self, _step: u64) {}

    /// Chief: all are to stand still in this turn after the next step that they can all be told in; 0: nobody is.
    fn hold(&mut self, turn: u64);

    /// All stood still before the next step, which took no time of training.
    fn went_on(&mut self) {}

    /// The gradient noise scale in examples, where the exchange measures it.
    fn noise_scale(&self) -> Option<f64> {
        None
    }

    /// How many take part now.
    fn layout(&self) -> Layout;

    /// Chief: the work is safe; tells everyone that training is over, and leaves.
    fn done(self: Box<Self>);

    /// Leaves in order, told so; the others may go on.
    fn goodbye(self: Box<Self>);
}

/// What a worker is to do next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Answer {
    /// The parameters are in place; go on with `step`. `stats` are of everybody's step before, and say whether all
    /// stand still now.
    Parameters { step: u64, stats: StepStats },
    /// The step cannot be completed as somebody has left; `lost` when not in order.
    Interrupted { lost: bool },
    /// The chief has ended training.
    Finished,
    /// Nobody answered in the time there was.
    GaveUp,
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        match reply {
            Reply::Parameters { clock, stats } => Self::Parameters { step: clock, stats },
            Reply::Interrupted { lost, .. } => Self::Interrupted { lost },
            // Not in the view any more, or not to be without those who left in order.
            Reply::Moved | Reply::Gone | Reply::Norm { .. } | Reply::Absent => {
                Self::Interrupted { lost: false }
            }
            Reply::Finished => Self::Finished,
            Reply::GaveUp => Self::GaveUp,
        }
    }
}

/// Why a worker's part in the exchange, or the chief's duties, cannot go on.
#[derive(Debug)]
pub(super) enum Trouble {
    /// With the PS shard of this index.
    Shard(usize, WireError),
    Own(WorkerError),
}

impl<E: Into<WorkerError>> From<E> for Trouble {
    fn from(error: E) -> Self {
        Self::Own(error.into())
    }
}

impl From<(usize, WireError)> for Trouble {
    fn from((index, error): (usize, WireError)) -> Self {
        Self::Shard(index, error)
    }
}

impl Trouble {
    /// How the task ends: a shard that refuses is an error of this task; one that is gone is a lost peer.
    ///
    /// # Errors
    /// The task's own error.
    pub fn ending(self) -> Result<Ending, WorkerError> {
        match self {
            Self::Own(error) => Err(error),
            Self::Shard(
                index,
                source @ (WireError::Refused(_)
                | WireError::Frame(_)
                | WireError::PayloadLength { .. }),
            ) => Err(WorkerError::Refused { index, source }),
            Self::Shard(index, error) => {
                log::line(format_args!(
                    "lost PS shard {index}: {}",
                    log::chain(&error)
                ));
                Ok(Ending::PeerLost)
            }
        }
    }
}
