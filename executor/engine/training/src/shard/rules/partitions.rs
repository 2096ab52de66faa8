//! BSP steps in partitions. When all counted workers have pushed a partition, it is summed in the
//! order of ranks, applied and sent to all of them. Other partitions are still being computed
//! meanwhile. The bits equal those of an undivided step, because the update of a value depends on
//! no other value.
//!
//! Some settings need undivided steps. Clipping and LARS need norms; a replica and backup workers
//! need to know whether a step counts as a whole. The bytes of a codec are divided differently.
//!
//! If a worker is lost during its push, the step keeps those of its partitions that were applied:
//! at most its part of one step.

use super::super::outbox::ParameterPartition;
use super::super::state::{OpenStep, PartitionNorms, PartitionedStep, ShardState};
use super::super::tensors::Factors;
use super::ShardRules;
use muster_comm::partitions;
use muster_comm::wire::metadata::NoisePart;
use muster_compute::optimizer::UpdateRule;
use std::sync::Arc;

impl ShardRules {
    /// Whether steps may be in partitions.
    pub fn takes_parts(&self) -> bool {
        let each_for_itself = !matches!(self.recipe.optimizer.rule, UpdateRule::Lars { .. });
        let is_plain = self.recipe.codecs.is_none() && !self.clips && each_for_itself;
        self.model.counts_every_worker() && is_plain && !self.is_replicated
    }

    /// Begins a step in partitions. Returns their number.
    pub fn begin_parted(&self, state: &mut ShardState) -> usize {
        let tensors = state.tensors.read().expect("no update has panicked");
        let count = partitions::count(tensors.parameters().len());
        drop(tensors);
        let measured = if state.version.is_multiple_of(NoisePart::EVERY) {
            count
        } else {
            0
        };
        if state.step.partitions().is_none() {
            state.step = OpenStep::InPartitions(PartitionedStep {
                applied: vec![false; count],
                noise: vec![PartitionNorms::default(); measured],
            });
        }
        count
    }

    /// Applies a partition once all counted workers have pushed it.
    pub fn apply_part(&self, state: &mut ShardState, part: usize) {
        let step = state.step.partitions();
        let Some(step) = step.filter(|step| !step.applied[part]) else {
            return;
        };
        let measures = !step.noise.is_empty();
        let mut counted = state.members.iter().filter(|m| m.is_counted());
        if !counted.all(|member| member.has_part(part)) {
            return;
        }
        let counted = state.members.iter_mut().filter(|m| m.is_counted());
        let mut pushed: Vec<Vec<f32>> = counted.filter_map(|m| m.parts[part].take()).collect();
        let Some(numbers) = pushed.first().map(Vec::len) else {
            return;
        };
        let factors = Factors {
            scale: self.grad_scale,
            ..Factors::default()
        };
        let offset = partitions::range(part, usize::MAX).start;
        let mut norms = PartitionNorms::default();
        let tensors = Arc::clone(&state.tensors);
        let mut tensors = tensors.write().expect("no update has panicked");
        if measures {
            let squares = pushed
                .iter()
                .map(|one| tensors.square_norm_from(offset, one, 1.0));
            norms.pushes = squares.collect();
        }
        let mut gradients: Vec<&mut [f32]> = pushed.iter_mut().map(Vec::as_mut_slice).collect();
        tensors.update_from(offset, state.updates, &mut gradients, factors);
        if measures {
            norms.whole = tensors.square_norm_from(offset, &pushed[0], factors.scale);
        }
        let mut pushed = pushed.into_iter();
        let mut answer = pushed.next().expect("a worker has pushed it");
        answer.copy_from_slice(&tensors.parameters()[offset..offset + numbers]);
        drop(tensors);
        pushed.for_each(|spare| self.spares.give(spare));
        let sent = ParameterPartition {
            clock: state.version + 1,
            numbers: Arc::new(answer),
        };
        for outbox in state.members.iter().filter_map(|m| m.outbox.as_ref()) {
            outbox.add(part, sent.clone());
        }
        let step = state.step.partitions_mut().expect("it was there");
        step.applied[part] = true;
        if measures {
            step.noise[part] = norms;
        }
    }

    /// BSP: applies all partitions that all counted workers have pushed. Completes the step after
    /// the last one.
    pub fn apply_parts_if_complete(&self, state: &mut ShardState) {
        if !state.phase.is_ready() {
            return;
        }
        let count = state.step.partitions().map_or(0, |step| step.applied.len());
        for part in 0..count {
            self.apply_part(state, part);
        }
        if !state.can_complete(0) {
            return;
        }
        let Some(step) = state.step.take_applied_partitions() else {
            return;
        };
        let mut targets = Vec::with_capacity(state.members.len());
        let report = &mut state.report;
        report.hold = 0;
        for member in &mut state.members {
            member.parts.clear();
            if let Some(push) = member.push.take() {
                targets.push(push.targets.max(1));
                report.hold = report.hold.max(push.stats.hold);
                report.stats.add(push.stats);
            }
        }
        if let Some(noise) = step.measure(&targets) {
            report.noise = noise;
        }
        state.completed();
    }
}
