//! A step's end: when the gradients are applied, and what a worker is told that waits for it.

use super::exchange::Exchange;
use super::state::State;
use super::words::{Answer, Push, Seat};
use crate::squeeze::Salt;
use crate::wire::hello::StepStats;
use crate::wire::view::View;
use muster_model::id::TaskId;
use std::sync::{Arc, MutexGuard};

impl Exchange {
    pub(super) fn answer_bsp(
        &self,
        mut state: MutexGuard<'_, State>,
        seat: Seat,
        clock: u64,
    ) -> Answer {
        loop {
            // The last step of a view that is over: from the tensors as they were then.
            let former = state
                .former
                .iter_mut()
                .filter(|former| former.clock == clock + 1)
                .find_map(|former| {
                    let at = former
                        .owed
                        .iter()
                        .position(|(task, _)| *task == seat.task)?;
                    let (_, buffer) = former.owed.swap_remove(at);
                    Some((buffer, Arc::clone(&former.tensors), former.deltas.clone()))
                });
            if let Some((buffer, tensors, deltas)) = former {
                state.former.retain(|former| !former.owed.is_empty());
                return Answer::Parameters {
                    view: state.view.clone(),
                    clock: clock + 1,
                    stats: state.take_stats(seat.task),
                    tensors,
                    deltas,
                    buffer,
                    copied: false,
                };
            }
            if state.version > clock {
                let Some(member) = state.member(seat.task) else {
                    // The chief took it for lost, and it is not.
                    let view = state.view.clone().expect("a step was pushed under one");
                    let buffer = Vec::new();
                    return Answer::Moved { view, buffer };
                };
                let buffer = std::mem::take(&mut member.spare);
                let deltas = state.deltas.clone();
                return self.parameters(&mut state, seat, buffer, None, deltas);
            }
            if state.finished {
                return Answer::Finished;
            }
            if let Some(lost) = state.chief_lost {
                return self.interrupted(&state, lost, Vec::new());
            }
            if state.is_chief(seat.task) && state.cannot_complete() {
                return Answer::Gone {
                    departed: state.departed(),
                    buffer: Vec::new(),
                };
            }
            state = self.wait(state);
        }
    }

    /// BSP: applies the step once everyone who counts has pushed it.
    pub(super) fn apply_if_complete(&self, state: &mut State) {
        if !state.can_complete() || state.phase != Phase::Ready {
            return;
        }
        let update = state.updates;
        let tensors = Arc::clone(&state.tensors);
        let mut gradients: Vec<&mut [f32]> = Vec::with_capacity(state.members.len());
        for push in state.members.iter_mut().filter_map(|m| m.push.as_mut()) {
            state.stats.add(push.stats);
            gradients.push(&mut push.gradients);
        }
        let mut tensors = tensors.write().expect("no update has panicked");
        tensors.update(update, &mut gradients, self.grad_scale);
        if let Some(squeeze) = &state.squeeze {
            let salt = Salt {
                seed: self.recipe.seed,
                step: update,
            };
            let mut deltas = Vec::new();
            let (parameters, known) = tensors.parameters_and_known();
            squeeze.encode_pull(salt, parameters, known, &mut deltas);
            state.deltas = Some(Arc::new(deltas));
        }
        for member in &mut state.members {
            if let Some(push) = member.push.take() {
                member.spare = push.gradients;
            }
        }
        state.updates += 1;
        state.version += 1;
    }

    pub(super) fn push_stale(
        &self,
        mut state: MutexGuard<'_, State>,
        seat: Seat,
        mut push: Push,
        staleness: u64,
    ) -> Answer {
        let update = state.updates;
        state
            .tensors
            .write()
            .expect("no update has panicked")
            .update(update, &mut [&mut push.gradients], self.grad_scale);
        state.updates += 1;
        state.stats.add(push.stats);
        let buffer = push.gradients;
        self.changed.notify_all();
        loop {
            if state.finished {
                return Answer::Finished;
            }
            if let Some(lost) = state.chief_lost {
                return self.interrupted(&state, lost, buffer);
            }
            if state.is_chief(seat.task) {
                let departed = state.departed();
                if !departed.is_empty() {
                    return Answer::Gone { departed, buffer };
                }
            } else if let Some((_, change)) = &state.pending {
                let view = Arc::new(change.view.clone());
                return Answer::Moved { view, buffer };
            }
            let slowest = state.slowest();
            let clock = state.member(seat.task).map_or(0, |member| member.clock);
            if clock.saturating_sub(slowest) <= staleness {
                return self.parameters(&mut state, seat, buffer, None, None);
            }
            state = self.wait(state);
        }
    }

    pub(super) fn parameters(
        &self,
        state: &mut State,
        seat: Seat,
        mut buffer: Vec<f32>,
        view: Option<Arc<View>>,
        deltas: Option<Arc<Vec<u8>>>,
    ) -> Answer {
        let tensors = Arc::clone(&state.tensors);
        let copied = !self.consistency.is_bulk_synchronous();
        if copied {
            // A copy, lest a worker that reads slowly holds up everyone else's updates.
            buffer.clear();
            buffer.extend_from_slice(tensors.read().expect("no update has panicked").parameters());
        }
        let member = state.member(seat.task).expect("a member is answered");
        member.answered = member.clock;
        Answer::Parameters {
            view,
            clock: member.clock,
            stats: state.take_stats(seat.task),
            tensors,
            deltas,
            buffer,
            copied,
        }
    }

    pub(super) fn interrupted(&self, state: &State, lost: bool, buffer: Vec<f32>) -> Answer {
        Answer::Interrupted {
            version: state.next_step(self.consistency),
            lost,
            buffer,
        }
    }
}

impl State {
    /// The counts go to the chief.
    fn take_stats(&mut self, task: TaskId) -> StepStats {
        match self.is_chief(task) {
            true => self.stats.take(),
            false => StepStats::default(),
        }
    }
}
