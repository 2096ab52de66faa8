//! The end of a step: when gradients are applied, and the answers to waiting workers.

use super::exchange::{ShardExchange, moved};
use super::messages::{ConnectionId, Push, ShardAnswer};
use super::state::{ShardState, TensorPhase};
use super::tensors::Factors;
use muster_comm::shard_codec::Salt;
use muster_comm::wire::metadata::{NoisePart, StepStats};
use muster_comm::wire::view::{Departed, TaskSetView};
use muster_compute::clock;
use muster_model::id::TaskId;
use muster_model::spec::{Consistency, Rate};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

/// Time after which the coordinator is asked about a worker of the view that has not connected.
const AWAITED_AFTER: Duration = Duration::from_millis(300);

impl ShardExchange {
    /// Waits for the end of step `clock`, pushed under view `pushed`; `None` if it was certainly
    /// the view of that step.
    pub(super) fn answer_bsp(
        &self,
        mut state: MutexGuard<'_, ShardState>,
        connection_id: ConnectionId,
        pushed: Option<u64>,
        clock: u64,
    ) -> ShardAnswer {
        let began = clock::now();
        loop {
            // The last step of an ended view: from the tensors at that time.
            let former = state
                .former
                .iter_mut()
                .filter(|former| former.clock == clock + 1)
                .find_map(|former| {
                    let at = former
                        .owed
                        .iter()
                        .position(|(task, _)| *task == connection_id.task)?;
                    let (_, buffer) = former.owed.swap_remove(at);
                    Some((buffer, Arc::clone(&former.tensors), former.deltas.clone()))
                });
            if let Some((buffer, tensors, deltas)) = former {
                state.former.retain(|former| !former.owed.is_empty());
                return ShardAnswer::Parameters {
                    view: state.view.clone(),
                    clock: clock + 1,
                    stats: state.take_stats(connection_id.task),
                    slowest: clock + 1,
                    noise: state.take_noise(connection_id.task),
                    tensors,
                    deltas,
                    keeps: state.residuals.is_due(clock + 1),
                    buffer,
                    copied: false,
                };
            }
            // With backup workers a step, and a new view, does not wait for this thread.
            if state.version > clock && pushed.is_some_and(|pushed| pushed != state.number()) {
                return moved(&state, Vec::new());
            }
            // With backup workers the step may be complete without the departed workers, so no
            // later check would report them.
            if self.backup() > 0 && state.is_chief(connection_id.task) {
                let departed = self.to_decide_on(&state, began);
                if !departed.is_empty() {
                    let buffer = Vec::new();
                    return ShardAnswer::Gone { departed, buffer };
                }
            }
            if state.version > clock {
                let Some(member) = state.member(connection_id.task) else {
                    // The coordinator has removed this worker as lost, although it is not.
                    return moved(&state, Vec::new());
                };
                let buffer = std::mem::take(&mut member.spare);
                let deltas = state.deltas.clone();
                // A worker at a promoted replica may not know the view.
                let view = state
                    .view
                    .clone()
                    .filter(|_| pushed.is_none() && self.is_promoted());
                return self.parameters(&mut state, connection_id, buffer, view, deltas);
            }
            if let Some(sum) = state
                .sum
                .as_ref()
                .filter(|_| state.is_chief(connection_id.task))
            {
                let square = sum.square;
                return ShardAnswer::Norm { clock, square };
            }
            if state.finished {
                return ShardAnswer::Finished;
            }
            if let Some(lost) = state.chief_lost {
                return self.interrupted(&state, lost, Vec::new());
            }
            if state.is_chief(connection_id.task) {
                let departed = self.to_decide_on(&state, began);
                if !departed.is_empty() {
                    state.awaits_decision = true;
                    let buffer = Vec::new();
                    return ShardAnswer::Gone { departed, buffer };
                }
            }
            state = self.wait_a_while(state);
        }
    }

    /// Coordinator: returns the workers that it must decide on before its answer, for which it has
    /// waited since `began`.
    fn to_decide_on(&self, state: &ShardState, began: Instant) -> Vec<Departed> {
        let mut out = if self.is_bsp() && self.backup() == 0 && !state.cannot_complete() {
            // A departed worker that has pushed the step still takes part in it.
            Vec::new()
        } else {
            state.departed()
        };
        if out.is_empty() && began.elapsed() >= AWAITED_AFTER {
            out.extend(state.awaited());
        }
        out
    }

    /// BSP: applies the step once all counted workers have pushed it.
    pub(super) fn apply_if_complete(&self, state: &mut ShardState) {
        if self.clips {
            return self.sum_up_if_complete(state);
        }
        if state.parted.is_some() {
            return self.apply_parts_if_complete(state);
        }
        if !state.can_complete(self.backup()) || state.phase != TensorPhase::Ready {
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
    pub(super) fn take_pushes(&self, state: &mut ShardState) -> (Vec<(TaskId, Push)>, f32) {
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
    pub(super) fn take_as_they_are(&self, state: &mut ShardState) -> (Vec<(TaskId, Push)>, f32) {
        let mut pushes = Vec::with_capacity(state.members.len());
        let mut targets = 0;
        let measures = state.version.is_multiple_of(NoisePart::EVERY);
        let mut noise = NoisePart::default();
        state.hold = 0;
        for member in &mut state.members {
            if let Some(push) = member.push.take() {
                targets += push.targets;
                state.hold = state.hold.max(push.stats.hold);
                state.stats.add(push.stats);
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
        let scale = match self.backup() {
            0 => self.grad_scale,
            // The mean covers the counted targets.
            _ => 1.0 / targets.max(1) as f32,
        };
        if measures {
            state.noise = noise;
        }
        (pushes, scale)
    }

    /// Returns the buffers of pushes to their workers, except the first, which contains the sum.
    pub(super) fn give_back(
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

    /// BSP: creates the answer after the step's sum was applied, and replicates it.
    pub(super) fn complete(
        &self,
        state: &mut ShardState,
        sum: (TaskId, Vec<f32>),
        factors: Factors,
    ) {
        if state.version.is_multiple_of(NoisePart::EVERY) {
            let tensors = state.tensors.read().expect("no update has panicked");
            state.noise.whole = tensors.square_norm(&sum.1, factors.scale);
        }
        if let Some(shard_codec) = state.shard_codec.clone().filter(|_| self.answers_encoded()) {
            let salt = Salt {
                seed: self.recipe.seed,
                step: state.updates,
            };
            let mut deltas = state.take_deltas();
            let mut tensors = state.tensors.write().expect("no update has panicked");
            let (parameters, known) = tensors.parameters_and_known();
            shard_codec.encode_pull(salt, parameters, known, &mut deltas);
            drop(tensors);
            state.deltas = Some(Arc::new(deltas));
        }
        state.completed();
        let (first, sum) = sum;
        self.ship(state, &sum, factors);
        if let Some(member) = state.member(first) {
            member.spare = sum;
        }
    }

    pub(super) fn push_stale(
        &self,
        mut state: MutexGuard<'_, ShardState>,
        connection_id: ConnectionId,
        mut push: Push,
    ) -> ShardAnswer {
        let update = state.updates;
        let read_at = state
            .member(connection_id.task)
            .map_or(0, |member| member.read_at);
        let factors = Factors {
            scale: self.grad_scale,
            rate: match self.consistency.rate() {
                Rate::Constant => 1.0,
                Rate::ByStaleness => 1.0 / update.saturating_sub(read_at).max(1) as f32,
            },
            ..Factors::default()
        };
        state
            .tensors
            .write()
            .expect("no update has panicked")
            .update_by(update, &mut [&mut push.gradients], factors);
        state.updates += 1;
        state.stats.add(push.stats);
        let next = state
            .member(connection_id.task)
            .map_or(0, |member| member.clock);
        state.now_holds(connection_id.task, next);
        self.ship(&mut state, &push.gradients, factors);
        self.changed.notify_all();
        self.answer_stale(state, connection_id, push.gradients)
    }

    /// SSP and ASP: waits until the worker may continue.
    pub(super) fn answer_stale(
        &self,
        mut state: MutexGuard<'_, ShardState>,
        connection_id: ConnectionId,
        buffer: Vec<f32>,
    ) -> ShardAnswer {
        let began = clock::now();
        let staleness = match self.consistency {
            Consistency::Ssp { staleness, .. } => u64::from(staleness),
            Consistency::Bsp { .. } | Consistency::Asp { .. } => u64::MAX,
        };
        loop {
            if state.finished {
                return ShardAnswer::Finished;
            }
            if let Some(lost) = state.chief_lost {
                return self.interrupted(&state, lost, buffer);
            }
            if state.is_chief(connection_id.task) {
                let departed = self.to_decide_on(&state, began);
                if !departed.is_empty() {
                    return ShardAnswer::Gone { departed, buffer };
                }
            } else if let Some((_, change)) = &state.pending {
                let view = Arc::new(change.view.clone());
                return ShardAnswer::Moved { view, buffer };
            }
            let slowest = state.slowest();
            let clock = state
                .member(connection_id.task)
                .map_or(0, |member| member.clock);
            if self.asks(&mut state, connection_id.task) {
                return ShardAnswer::HandOver { clock, buffer };
            }
            if clock.saturating_sub(slowest) <= staleness {
                return self.parameters(&mut state, connection_id, buffer, None, None);
            }
            state = self.wait_a_while(state);
        }
    }

    pub(super) fn parameters(
        &self,
        state: &mut ShardState,
        connection_id: ConnectionId,
        mut buffer: Vec<f32>,
        view: Option<Arc<TaskSetView>>,
        deltas: Option<Arc<Vec<u8>>>,
    ) -> ShardAnswer {
        let tensors = Arc::clone(&state.tensors);
        let copied = !self.is_bsp() || self.backup() > 0;
        if copied {
            // A copy, so that a worker that reads slowly does not delay the updates of the others.
            buffer.clear();
            buffer.extend_from_slice(tensors.read().expect("no update has panicked").parameters());
        }
        let (version, updates) = (state.version, state.updates);
        let slowest = if self.is_bsp() {
            version
        } else {
            state.slowest()
        };
        let keeps = match deltas {
            Some(_) => state.residuals.is_due(version),
            // A pull, which has a view, belongs to no push.
            None => view.is_none() && self.is_to_say(state, connection_id.task),
        };
        let member = state
            .member(connection_id.task)
            .expect("a member is answered");
        if self.backup() > 0 {
            member.clock = version;
        }
        member.answered = member.clock;
        member.read_at = updates;
        ShardAnswer::Parameters {
            view,
            clock: member.clock,
            stats: state.take_stats(connection_id.task),
            slowest,
            noise: state.take_noise(connection_id.task),
            tensors,
            deltas,
            keeps,
            buffer,
            copied,
        }
    }

    pub(super) fn interrupted(
        &self,
        state: &ShardState,
        lost: bool,
        buffer: Vec<f32>,
    ) -> ShardAnswer {
        ShardAnswer::Interrupted {
            version: state.next_step(self.consistency),
            lost,
            buffer,
        }
    }
}

impl ShardState {
    /// Counts an applied step.
    pub(super) fn completed(&mut self) {
        self.updates += 1;
        self.version += 1;
        self.residuals.forget_before(self.version);
    }

    /// Returns the noise measurement to the coordinator.
    fn take_noise(&mut self, task: TaskId) -> NoisePart {
        if self.is_chief(task) {
            std::mem::take(&mut self.noise)
        } else {
            NoisePart::default()
        }
    }

    /// Returns the counts to the coordinator, and the slice number to every worker.
    fn take_stats(&mut self, task: TaskId) -> StepStats {
        let stats = if self.is_chief(task) {
            self.stats.take()
        } else {
            StepStats::default()
        };
        StepStats {
            hold: self.hold,
            ..stats
        }
    }
}
