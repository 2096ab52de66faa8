//! Rules of the exchange: its settings, and the work on the state under its lock. Nothing here
//! takes the lock, or waits for a worker; [`super::exchange`] does.

mod answers;
mod clip;
mod consistency;
mod encoded_steps;
mod partitions;
mod step;
mod view;

pub use answers::moved;
pub use consistency::{Admission, WaitingWorker, model_of};

use super::outbox::ShardBufferPool;
use super::recipe::Recipe;
use super::state::ShardState;
use super::tensors::Tensors;
use consistency::ConsistencyModel;
use muster_comm::assign::ParameterPiece;
use muster_model::id::TaskId;
use std::sync::Arc;

/// Settings of a shard's exchange. They do not change.
#[derive(Debug, Clone)]
pub struct ShardRules {
    /// This shard.
    pub me: TaskId,
    /// Task whose process hosts it: its own, or the replica holder.
    pub host: TaskId,
    pub model: Arc<dyn ConsistencyModel>,
    pub recipe: Recipe,
    pub grad_scale: f32,
    /// Whether a step waits for the coordinator's clip factor.
    pub clips: bool,
    /// Whether this shard has a replica.
    pub is_replicated: bool,
    /// Free buffers for partitions.
    pub spares: Arc<ShardBufferPool>,
}

impl ShardRules {
    /// Creates the empty state of a shard.
    pub fn empty_state(&self) -> ShardState {
        ShardState::new(self.empty_tensors(&[]))
    }

    /// Creates zero tensors for these pieces.
    pub fn empty_tensors(&self, pieces: &[ParameterPiece]) -> Tensors {
        self.recipe
            .tensors(pieces, self.model.counts_every_worker())
    }

    /// Returns the settings of a lost shard that this process hosts.
    pub fn promoted(&self, lost: TaskId) -> Self {
        Self {
            me: lost,
            spares: Arc::default(),
            ..self.clone()
        }
    }

    pub fn is_promoted(&self) -> bool {
        self.me != self.host
    }

    /// Whether answers contain only differences, and the shard stores the parameters as the workers
    /// know them.
    pub fn keeps_known(&self) -> bool {
        self.model.counts_every_worker() && self.recipe.codecs.is_some()
    }

    /// Whether pushes are encoded under SSP or ASP, so that each worker sends residuals by itself.
    pub fn is_heard_singly(&self) -> bool {
        self.recipe.codecs.is_some() && !self.model.is_synchronous()
    }

    /// Whether workers may push the sum of several: all workers are waited for, and gradients are
    /// not encoded.
    pub fn takes_sums(&self) -> bool {
        self.model.counts_every_worker() && self.recipe.codecs.is_none()
    }

    /// Whether a worker may correctly push under an ended view. This is the case with backup
    /// workers, and at a promoted replica, if the answer with the next view was lost with the
    /// shard.
    pub fn may_have_missed(&self) -> bool {
        self.model.drops_pushes() || self.is_promoted()
    }
}
