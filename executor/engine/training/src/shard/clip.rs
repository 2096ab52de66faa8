//! Clipping by the norm of the whole gradient, of which each shard has a part (Pascanu, Mikolov and
//! Bengio, ICML 2013).
//!
//! Under BSP a shard sums its part of a step and sends the squared norm to the coordinator. The
//! coordinator waits for all shards and sends them the clip factor; only then the step is applied.
//! The messages use the coordinator's connections, on which it waits in any case. Messages between
//! shards would need connections among them, which every failover would have to replace. Under SSP
//! and ASP a step has no mean to clip, and each worker clips its own pushes.

use super::exchange::ShardExchange;
use super::messages::{ConnectionId, RequestRefusal};
use super::state::{ShardState, TensorPhase};
use super::tensors::Factors;
use muster_model::id::TaskId;
use std::sync::Arc;

/// A step's sum of gradients, which waits for the clip factor.
#[derive(Debug)]
pub(super) struct UnclippedSum {
    /// Worker whose push buffer contains the sum.
    of: TaskId,
    gradients: Vec<f32>,
    scale: f32,
    /// Squared norm of the sum times its scale.
    pub square: f64,
}

impl ShardExchange {
    /// Sets whether the coordinator clips the gradients.
    #[must_use]
    pub fn clipped(mut self, clips: bool) -> Self {
        self.clips = clips;
        self
    }

    /// BSP: sums the step once all counted workers have pushed it.
    pub(super) fn sum_up_if_complete(&self, state: &mut ShardState) {
        let waits = state.sum.is_some() || state.phase != TensorPhase::Ready;
        if waits || !state.can_complete(self.backup()) {
            return;
        }
        let (mut pushes, scale) = self.take_pushes(state);
        let mut gradients: Vec<&mut [f32]> = pushes
            .iter_mut()
            .map(|(_, push)| push.gradients.as_mut_slice())
            .collect();
        let square = {
            let tensors = state.tensors.read().expect("no update has panicked");
            tensors.sum_up(&mut gradients, scale)
        };
        let (of, gradients) = self.give_back(state, pushes);
        state.sum = Some(UnclippedSum {
            of,
            gradients,
            scale,
            square,
        });
    }

    /// Coordinator: applies step `clock` with the clip factor `factor`.
    ///
    /// # Errors
    /// [`RequestRefusal::NotChief`]; [`RequestRefusal::NothingToClip`] when no such step waits for
    /// it.
    pub(super) fn clip(
        &self,
        connection_id: ConnectionId,
        clock: u64,
        factor: f32,
    ) -> Result<(), RequestRefusal> {
        let mut state = self.lock();
        if !state.is_chief(connection_id.task) {
            return Err(RequestRefusal::NotChief);
        }
        let sum = if state.version == clock {
            state.sum.take()
        } else {
            None
        };
        let mut sum = sum.ok_or(RequestRefusal::NothingToClip(clock))?;
        let factors = Factors {
            scale: sum.scale,
            clip: factor,
            ..Factors::default()
        };
        let tensors = Arc::clone(&state.tensors);
        tensors.write().expect("no update has panicked").update_by(
            state.updates,
            &mut [&mut sum.gradients],
            factors,
        );
        self.complete(&mut state, (sum.of, sum.gradients), factors);
        self.follow(&mut state);
        self.notify();
        Ok(())
    }
}
