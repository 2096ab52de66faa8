//! The end of a step under BSP: when gradients are applied, and how.

use super::super::messages::Push;
use super::super::state::{OpenStep, ShardState};
use super::super::tensors::Factors;
use super::ShardRules;
use muster_comm::shard_codec::Salt;
use muster_comm::wire::metadata::NoisePart;
use muster_comm::wire::view::ReplicaPosition;
use muster_model::id::TaskId;
use std::sync::Arc;

impl ShardRules {
    /// Applies the step once all counted workers but the slowest `backup` have pushed it.
    pub fn apply_if_complete(&self, state: &mut ShardState, backup: u32) {
        if self.clips {
            return self.sum_up_if_complete(state, backup);
        }
        if let OpenStep::InPartitions(_) = state.step {
            return self.apply_parts_if_complete(state);
        }
        if !state.can_complete(backup) || !state.phase.is_ready() {
            return;
        }
        if self.can_apply_codes(state) {
            return self.apply_codes(state);
        }
        let (mut pushes, scale) = self.take_pushes(state);
        let factors = Factors {
            scale,
            ..Factors::default()
        };
        let mut gradients: Vec<&mut [f32]> = pushes
            .iter_mut()
            .map(|(_, push)| push.gradients.as_mut_slice())
            .collect();
        let tensors = Arc::clone(&state.tensors);
        tensors.write().expect("no update has panicked").update_by(
            state.updates,
            &mut gradients,
            factors,
        );
        let sum = self.give_back(state, pushes);
        self.complete(state, sum, factors);
    }

    /// Returns the pushes of a complete step in the order of ranks, and the factor for their sum.
    pub fn take_pushes(&self, state: &mut ShardState) -> (Vec<(TaskId, Push)>, f32) {
        let parameters = {
            let tensors = state.tensors.read().expect("no update has panicked");
            tensors.parameters().len()
        };
        for member in &mut state.members {
            if let Some(push) = &mut member.push {
                push.decode(parameters);
            }
        }
        self.take_as_they_are(state)
    }

    /// Like [`Self::take_pushes`], without decoding.
    pub fn take_as_they_are(&self, state: &mut ShardState) -> (Vec<(TaskId, Push)>, f32) {
        let mut pushes = Vec::with_capacity(state.members.len());
        let mut targets = 0;
        let measures = state.version.is_multiple_of(NoisePart::EVERY);
        let mut noise = NoisePart::default();
        let report = &mut state.report;
        report.hold = 0;
        for member in &mut state.members {
            if let Some(push) = member.push.take() {
                targets += push.targets;
                report.hold = report.hold.max(push.stats.hold);
                report.stats.add(push.stats);
                if let Some(together) = push.together.as_ref().filter(|_| measures) {
                    noise.squares += together.squares;
                    noise.inverses += together.inverses;
                    noise.pushes += 1 + together.others.len() as u64;
                } else if measures && push.targets > 0 {
                    let inverse = 1.0 / push.targets as f64;
                    let tensors = state.tensors.read().expect("no update has panicked");
                    noise.squares += tensors.square_norm(&push.gradients, inverse as f32);
                    noise.inverses += inverse;
                    noise.pushes += 1;
                }
                pushes.push((member.task, push));
            }
        }
        let scale = self.model.scale(self, targets);
        if measures {
            report.noise = noise;
        }
        (pushes, scale)
    }

    /// Returns the buffers of pushes to their workers, except the first, which contains the sum.
    pub fn give_back(
        &self,
        state: &mut ShardState,
        pushes: Vec<(TaskId, Push)>,
    ) -> (TaskId, Vec<f32>) {
        let mut pushes = pushes
            .into_iter()
            .map(|(task, push)| (task, push.gradients));
        let first = pushes.next().expect("a step has a push");
        for (task, buffer) in pushes {
            state.member(task).expect("it has just pushed").spare = buffer;
        }
        first
    }

    /// Creates the answer after the step's sum was applied, and replicates it.
    pub fn complete(&self, state: &mut ShardState, sum: (TaskId, Vec<f32>), factors: Factors) {
        if state.version.is_multiple_of(NoisePart::EVERY) {
            let tensors = state.tensors.read().expect("no update has panicked");
            state.report.noise.whole = tensors.square_norm(&sum.1, factors.scale);
        }
        let shard_codec = state.encoding.shard_codec.clone();
        if let Some(shard_codec) = shard_codec.filter(|_| self.keeps_known()) {
            let salt = Salt {
                seed: self.recipe.seed,
                step: state.updates,
            };
            let mut deltas = state.encoding.take_deltas();
            let mut tensors = state.tensors.write().expect("no update has panicked");
            let (parameters, known) = tensors.parameters_and_known();
            shard_codec.encode_pull(salt, parameters, known, &mut deltas);
            drop(tensors);
            state.encoding.deltas = Some(Arc::new(deltas));
        }
        state.completed();
        let (first, sum) = sum;
        self.ship(state, &sum, factors);
        if let Some(member) = state.member(first) {
            member.spare = sum;
        }
    }

    /// Sends the update that was just applied to the replica holder, if there is one.
    pub fn ship(&self, state: &mut ShardState, sum: &[f32], factors: Factors) {
        let (Some(replica_sender), Some(view)) = (&mut state.replica_sender, &state.view) else {
            return;
        };
        let Some(to) = view.replica_holder(self.me, self.host) else {
            return;
        };
        let Factors { scale, clip, rate } = factors;
        let shipped = ReplicaPosition {
            view: view.number,
            layout: view.layout,
            pieces: Vec::new(),
            version: state.version,
            updates: state.updates,
            hold: state.report.hold,
            clocks: state
                .members
                .iter()
                .map(|member| (member.task, member.clock))
                .collect(),
            factors: [scale, clip, rate].map(f32::to_bits),
        };
        let tensors = state.tensors.read().expect("no update has panicked");
        if !replica_sender.ship(view, to, shipped, sum, &tensors) {
            state.ending.superseded = true;
            state.ending.broken = true;
        }
    }
}
