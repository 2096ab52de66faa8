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

use super::exchange::ShardExchange;
use super::messages::{ConnectionId, Push, RequestRefusal, ShardAnswer};
use super::outbox::{ParameterPartition, PartitionOutbox};
use super::state::{ShardState, TensorPhase, WorkerStatus};
use super::tensors::Factors;
use muster_comm::partitions;
use muster_comm::wire::metadata::{NoisePart, PushHead};
use muster_compute::optimizer::UpdateRule;
use std::sync::{Arc, MutexGuard};

/// State of the present step.
#[derive(Debug, Default)]
pub(super) struct PartitionedStep {
    /// Whether each partition is applied.
    applied: Vec<bool>,
    /// Norms of each partition, where the noise is measured.
    noise: Vec<PartitionNorms>,
}

/// Squared norms of a partition of a step.
#[derive(Debug, Default, Clone)]
struct PartitionNorms {
    /// Norms of the workers' sums, in the order of ranks.
    pushes: Vec<f64>,
    /// Norm of the mean of all.
    whole: f64,
}

impl PartitionedStep {
    /// Whether some parameters are those after the present step and others are not.
    pub fn is_half_done(&self) -> bool {
        self.applied.contains(&true)
    }
}

/// A partition of a worker's gradients.
pub(super) struct GradientPartition {
    pub view: u64,
    pub clock: u64,
    pub part: usize,
    pub numbers: Vec<f32>,
}

impl ShardExchange {
    /// Whether steps may be in partitions.
    #[must_use]
    pub fn takes_parts(&self) -> bool {
        let each_for_itself = !matches!(self.recipe.optimizer.rule, UpdateRule::Lars { .. });
        let is_plain = self.recipe.codecs.is_none() && !self.clips && each_for_itself;
        self.is_bsp() && self.backup() == 0 && is_plain && !self.is_replicated
    }

    /// Receives a partition of a worker's gradients. Does not wait; answers go to `outbox`.
    ///
    /// # Errors
    /// As [`Self::push`]; [`RequestRefusal::Part`] for one that has arrived already.
    pub(super) fn push_part(
        &self,
        connection_id: ConnectionId,
        outbox: &Arc<PartitionOutbox>,
        piece: GradientPartition,
    ) -> Result<(), RequestRefusal> {
        let Some(mut state) = self.parted(connection_id, piece.view, piece.clock)? else {
            // The answer after all partitions states the reason.
            return Ok(());
        };
        let count = state.begin_parted();
        let member = state
            .member(connection_id.task)
            .expect("it has just been looked at");
        member.outbox = Some(Arc::clone(outbox));
        member.parts.resize(count, None);
        let is_new = member.push.is_none();
        match member.parts.get_mut(piece.part) {
            Some(slot) if slot.is_none() && is_new => *slot = Some(piece.numbers),
            _ => return Err(RequestRefusal::Part(piece.part)),
        }
        self.apply_part(&mut state, piece.part);
        Ok(())
    }

    /// Handles the end of the worker's gradients of `clock`: waits until the worker may continue.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub(super) fn push_rest(
        &self,
        connection_id: ConnectionId,
        outbox: &Arc<PartitionOutbox>,
        clock: u64,
        head: PushHead,
    ) -> Result<ShardAnswer, RequestRefusal> {
        let Some(mut state) = self.parted(connection_id, head.view, clock)? else {
            let state = self.lock();
            return Ok(match state.chief_lost {
                Some(lost) if !state.finished => self.interrupted(&state, lost, Vec::new()),
                _ => ShardAnswer::Finished,
            });
        };
        state.begin_parted();
        state.forget_owed(|former, task| former.clock <= clock && task == connection_id.task);
        let member = state
            .member(connection_id.task)
            .expect("it has just been looked at");
        member.outbox = Some(Arc::clone(outbox));
        member.clock = clock + 1;
        member.push = Some(Push {
            gradients: Vec::new(),
            codes: None,
            targets: head.targets,
            stats: head.stats,
            together: None,
        });
        self.follow(&mut state);
        self.notify();
        Ok(self.answer_bsp(state, connection_id, Some(head.view), clock))
    }

    /// Returns the state, if this worker may push `clock` in partitions under view `number`; `None`
    /// when training has ended or is interrupted.
    fn parted(
        &self,
        connection_id: ConnectionId,
        number: u64,
        clock: u64,
    ) -> Result<Option<MutexGuard<'_, ShardState>>, RequestRefusal> {
        let mut state = self.lock();
        loop {
            if state.finished || state.chief_lost.is_some() {
                return Ok(None);
            }
            match state.phase {
                TensorPhase::Empty => return Err(RequestRefusal::NotInitialised),
                TensorPhase::Retired => {
                    return Err(RequestRefusal::Change("this shard is not in it"));
                }
                TensorPhase::Moving { .. } => state = self.wait(state),
                TensorPhase::Ready => break,
            }
        }
        let present = state.number();
        if number != present {
            return Err(RequestRefusal::StaleView {
                known: number,
                present,
            });
        }
        let is_whole = state.parted.is_none() && state.members.iter().any(|m| m.push.is_some());
        if is_whole {
            return Err(RequestRefusal::Mixed(clock));
        }
        let member = state
            .member(connection_id.task)
            .ok_or(RequestRefusal::Stranger(connection_id.task))?;
        if member.clock == clock {
            Ok(Some(state))
        } else {
            Err(RequestRefusal::StalePush {
                task: connection_id.task,
                pushed: clock,
                expected: member.clock,
            })
        }
    }

    /// Applies a partition once all counted workers have pushed it.
    fn apply_part(&self, state: &mut ShardState, part: usize) {
        let Some(parted) = state.parted.as_ref().filter(|p| !p.applied[part]) else {
            return;
        };
        let measures = !parted.noise.is_empty();
        let counts = |standing| standing != WorkerStatus::Dropped;
        let has = |parts: &[Option<Vec<f32>>]| parts.get(part).is_some_and(Option::is_some);
        let mut counted = state.members.iter().filter(|m| counts(m.standing));
        if !counted.all(|member| has(&member.parts)) {
            return;
        }
        let counted = state.members.iter_mut().filter(|m| counts(m.standing));
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
        let mut answer = pushed.next().expect("somebody has pushed it");
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
        let parted = state.parted.as_mut().expect("it was there");
        parted.applied[part] = true;
        if measures {
            parted.noise[part] = norms;
        }
    }

    /// BSP: applies all partitions that all counted workers have pushed. Completes the step after
    /// the last one.
    pub(super) fn apply_parts_if_complete(&self, state: &mut ShardState) {
        if state.phase != TensorPhase::Ready {
            return;
        }
        let count = state
            .parted
            .as_ref()
            .map_or(0, |parted| parted.applied.len());
        for part in 0..count {
            self.apply_part(state, part);
        }
        if !state.can_complete(0)
            || !state
                .parted
                .as_ref()
                .is_some_and(|parted| parted.applied.iter().all(|&applied| applied))
        {
            return;
        }
        let parted = state.parted.take().expect("it was there");
        let mut targets = Vec::with_capacity(state.members.len());
        state.hold = 0;
        for member in &mut state.members {
            member.parts.clear();
            if let Some(push) = member.push.take() {
                targets.push(push.targets.max(1));
                state.hold = state.hold.max(push.stats.hold);
                state.stats.add(push.stats);
            }
        }
        state.measure(&targets, &parted);
        state.updates += 1;
        state.version += 1;
        let version = state.version;
        state.residuals.forget_before(version);
    }
}

impl ShardState {
    /// Begins a step in partitions. Returns their number.
    fn begin_parted(&mut self) -> usize {
        let tensors = self.tensors.read().expect("no update has panicked");
        let count = partitions::count(tensors.parameters().len());
        drop(tensors);
        let measured = if self.version.is_multiple_of(NoisePart::EVERY) {
            count
        } else {
            0
        };
        self.parted.get_or_insert_with(|| PartitionedStep {
            applied: vec![false; count],
            noise: vec![PartitionNorms::default(); measured],
        });
        count
    }

    /// Sets the noise measurement of a step whose pushes have these targets, if all partitions of
    /// all pushes were measured.
    fn measure(&mut self, targets: &[u64], parted: &PartitionedStep) {
        if parted.noise.is_empty()
            || !parted
                .noise
                .iter()
                .all(|norms| norms.pushes.len() == targets.len())
        {
            return;
        }
        let inverse = |&targets: &u64| 1.0 / targets as f64;
        let squares = targets.iter().enumerate().map(|(rank, targets)| {
            let of_sum: f64 = parted.noise.iter().map(|norms| norms.pushes[rank]).sum();
            of_sum * inverse(targets).powi(2)
        });
        self.noise = NoisePart {
            squares: squares.sum(),
            inverses: targets.iter().map(inverse).sum(),
            whole: parted.noise.iter().map(|norms| norms.whole).sum(),
            pushes: targets.len() as u64,
        };
    }
}
