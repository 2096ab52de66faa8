//! Clipping by the norm of the whole gradient, of which each shard has a part (Pascanu, Mikolov and
//! Bengio, ICML 2013).
//!
//! Under BSP a shard sums its part of a step and sends the squared norm to the coordinator. The
//! coordinator waits for all shards and sends them the clip factor; only then the step is applied.
//! The messages use the coordinator's connections, on which it waits in any case. Messages between
//! shards would need connections among them, which every failover would have to replace. Under SSP
//! and ASP a step has no mean to clip, and each worker clips its own pushes.

use super::super::state::{OpenStep, ShardState, UnclippedSum};
use super::super::tensors::Factors;
use super::ShardRules;

impl ShardRules {
    /// Sums the step once all counted workers but the slowest `backup` have pushed it.
    pub fn sum_up_if_complete(&self, state: &mut ShardState, backup: u32) {
        let waits = state.step.sum().is_some() || !state.phase.is_ready();
        if waits || !state.can_complete(backup) {
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
        state.step = OpenStep::Summed(UnclippedSum {
            of,
            gradients,
            scale,
            square,
        });
    }

    /// Applies the sum with the coordinator's clip factor.
    pub fn apply_clipped(&self, state: &mut ShardState, mut sum: UnclippedSum, factor: f32) {
        let factors = Factors {
            scale: sum.scale,
            clip: factor,
            ..Factors::default()
        };
        let updates = state.updates;
        let tensors = &state.tensors;
        tensors.write().expect("no update has panicked").update_by(
            updates,
            &mut [&mut sum.gradients],
            factors,
        );
        self.complete(state, (sum.of, sum.gradients), factors);
        self.follow(state);
    }
}
