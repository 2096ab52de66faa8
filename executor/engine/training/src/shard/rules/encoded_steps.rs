//! Steps whose pushes are kept encoded, and applied without decoding them as a whole.

use super::super::messages::Push;
use super::super::state::ShardState;
use super::super::tensors::Factors;
use super::ShardRules;
use muster_comm::shard_codec::{Salt, ShardCodec};
use muster_comm::wire::metadata::NoisePart;
use muster_compute::optimizer::UpdateRule;
use muster_model::id::TaskId;
use std::sync::Arc;

impl ShardRules {
    /// Whether pushes with this codec are kept encoded. Clipping, LARS and a replica need the whole
    /// gradients.
    pub fn keeps_codes(&self, shard_codec: &ShardCodec) -> bool {
        let whole = self.clips || self.is_replicated;
        let whole = whole || matches!(self.recipe.optimizer.rule, UpdateRule::Lars { .. });
        self.keeps_known() && !whole && shard_codec.is_fixed()
    }

    /// Whether the complete step can be applied from codes: all workers have pushed codes of the
    /// present layout. Not in steps that measure the gradient noise, which needs each worker's
    /// gradients.
    pub fn can_apply_codes(&self, state: &ShardState) -> bool {
        let Some(shard_codec) = &state.encoding.shard_codec else {
            return false;
        };
        let mut pushes = state.members.iter().filter_map(|m| m.push.as_ref());
        !state.version.is_multiple_of(NoisePart::EVERY)
            && pushes.all(|push| {
                let codes = push.codes.as_ref();
                codes.is_some_and(|codes| Arc::ptr_eq(&codes.shard_codec, shard_codec))
            })
    }

    /// BSP: applies such a step and creates the answer.
    pub fn apply_codes(&self, state: &mut ShardState) {
        let (pushes, scale) = self.take_as_they_are(state);
        let factors = Factors {
            scale,
            ..Factors::default()
        };
        let shard_codec = state.encoding.shard_codec.clone();
        let shard_codec = shard_codec.expect("pushes are encoded by it");
        let (codes, pushes): (Vec<Vec<u8>>, Vec<(TaskId, Push)>) = pushes
            .into_iter()
            .filter_map(|(task, mut push)| {
                let codes = push.codes.take()?;
                Some((codes.bytes, (task, push)))
            })
            .unzip();
        let salt = Salt {
            seed: self.recipe.seed,
            step: state.updates,
        };
        let mut deltas = state.encoding.take_deltas();
        let mut tensors = state.tensors.write().expect("no update has panicked");
        let update = (state.updates, factors);
        let all: Vec<&[u8]> = codes.iter().map(Vec::as_slice).collect();
        tensors.update_encoded((&shard_codec, salt), &all, update, &mut deltas);
        drop(tensors);
        state.encoding.spare_codes = codes;
        state.encoding.deltas = Some(Arc::new(deltas));
        state.completed();
        let (first, buffer) = self.give_back(state, pushes);
        if let Some(member) = state.member(first) {
            member.spare = buffer;
        }
    }
}
