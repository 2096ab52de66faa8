//! Answers to workers.

use super::super::messages::ShardAnswer;
use super::super::state::ShardState;
use super::ShardRules;
use muster_comm::wire::view::TaskSetView;
use muster_model::id::TaskId;
use std::sync::Arc;

impl ShardRules {
    /// Returns the present parameters for a member of the view.
    pub fn parameters(
        &self,
        state: &mut ShardState,
        task: TaskId,
        mut buffer: Vec<f32>,
        view: Option<Arc<TaskSetView>>,
        deltas: Option<Arc<Vec<u8>>>,
    ) -> ShardAnswer {
        let tensors = Arc::clone(&state.tensors);
        let copied = !self.model.counts_every_worker();
        if copied {
            // A copy, so that a worker that reads slowly does not delay the updates of the others.
            buffer.clear();
            buffer.extend_from_slice(tensors.read().expect("no update has panicked").parameters());
        }
        let (version, updates) = (state.version, state.updates);
        let slowest = self.model.slowest(state);
        let keeps = match deltas {
            Some(_) => state.residuals.is_due(version),
            // A pull, which has a view, belongs to no push.
            None => view.is_none() && self.is_to_say(state, task),
        };
        let to_chief = state.is_chief(task);
        let member = state.member(task).expect("a member is answered");
        if self.model.drops_pushes() {
            member.clock = version;
        }
        member.answered = member.clock;
        member.read_at = updates;
        let clock = member.clock;
        ShardAnswer::Parameters {
            view,
            clock,
            stats: state.report.take_stats(to_chief),
            slowest,
            noise: state.report.take_noise(to_chief),
            tensors,
            deltas,
            keeps,
            buffer,
            copied,
        }
    }

    /// Returns the answer to the last step of an ended view, after which the next step of `task` is
    /// `next`; `None` if it is not owed one.
    pub fn owed_parameters(
        &self,
        state: &mut ShardState,
        task: TaskId,
        next: u64,
    ) -> Option<ShardAnswer> {
        let owed = state.owed.take(task, next)?;
        let to_chief = state.is_chief(task);
        Some(ShardAnswer::Parameters {
            view: state.view.clone(),
            clock: next,
            stats: state.report.take_stats(to_chief),
            slowest: next,
            noise: state.report.take_noise(to_chief),
            tensors: owed.tensors,
            deltas: owed.deltas,
            keeps: state.residuals.is_due(next),
            buffer: owed.buffer,
            copied: false,
        })
    }

    /// Returns the answer to every waiting worker after the end of training, or after the
    /// coordinator has gone. Otherwise returns `None` and leaves `buffer`.
    pub fn after_end(&self, state: &ShardState, buffer: &mut Vec<f32>) -> Option<ShardAnswer> {
        if state.ending.finished {
            return Some(ShardAnswer::Finished);
        }
        let lost = state.ending.chief_lost?;
        Some(ShardAnswer::Interrupted {
            version: self.model.next_step(state),
            lost,
            buffer: std::mem::take(buffer),
        })
    }

    /// Whether a worker's next push must be followed by its residual.
    pub fn is_to_say(&self, state: &ShardState, worker: TaskId) -> bool {
        self.is_heard_singly() && state.residuals.announced().is_some() && !state.is_chief(worker)
    }

    /// Whether to ask a worker that waits for an answer for its residual; records that it was
    /// asked.
    pub fn asks(&self, state: &mut ShardState, worker: TaskId) -> bool {
        self.is_to_say(state, worker) && state.residuals.ask(worker)
    }
}

/// Returns the answer to a worker that must enter the present view.
pub fn moved(state: &ShardState, buffer: Vec<f32>) -> ShardAnswer {
    let view = state.view.clone().expect("a step was pushed under one");
    ShardAnswer::Moved { view, buffer }
}
