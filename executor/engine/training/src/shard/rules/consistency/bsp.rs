//! BSP: the step's gradients are summed in the order of ranks once all have arrived, so the result
//! has the same bits each time. With backup workers a step does not wait for the slowest ones.

use super::super::super::messages::{Push, ShardAnswer};
use super::super::super::replica::ShardReplica;
use super::super::super::state::{PendingChange, ShardState};
use super::super::{ShardRules, moved};
use super::{Admission, ConsistencyModel, WaitingWorker};
use muster_model::id::TaskId;

/// Bulk synchronous parallel.
#[derive(Debug)]
pub struct Bsp {
    /// Number of workers whose gradients a step does not wait for.
    pub backup: u32,
}

impl ConsistencyModel for Bsp {
    fn is_synchronous(&self) -> bool {
        true
    }

    fn drops_pushes(&self) -> bool {
        self.backup > 0
    }

    fn scale(&self, rules: &ShardRules, targets: u64) -> f32 {
        if self.drops_pushes() {
            // The mean covers the counted targets.
            1.0 / targets.max(1) as f32
        } else {
            rules.grad_scale
        }
    }

    fn next_step(&self, state: &ShardState) -> u64 {
        state.version
    }

    fn slowest(&self, state: &ShardState) -> u64 {
        state.version
    }

    fn admit(&self, state: &ShardState, task: TaskId, clock: u64) -> Admission {
        if !self.drops_pushes() {
            return Admission::Taken;
        }
        if clock > state.version {
            // Another shard that has completed the previous steps may have answered this worker.
            // They will soon be complete here.
            return Admission::Early;
        }
        if !state.has_member(task) {
            return Admission::Taken;
        }
        if clock < state.version {
            Admission::Late
        } else if state.step.sum().is_some() {
            // The step waits only for the clip factor.
            Admission::Excluded
        } else {
            Admission::Taken
        }
    }

    fn take(
        &self,
        rules: &ShardRules,
        state: &mut ShardState,
        task: TaskId,
        push: Push,
    ) -> Vec<f32> {
        let member = state.member(task).expect("a member has pushed");
        member.push = Some(push);
        rules.follow(state);
        Vec::new()
    }

    fn complete_step(&self, rules: &ShardRules, state: &mut ShardState) {
        rules.apply_if_complete(state, self.backup);
    }

    /// Answers the last step of an ended view from the tensors at that time. The end of the step
    /// has precedence over the end of training.
    fn answer(
        &self,
        rules: &ShardRules,
        state: &mut ShardState,
        waiting: &mut WaitingWorker,
    ) -> Option<ShardAnswer> {
        let (task, clock) = (waiting.task, waiting.clock);
        if let Some(answer) = rules.owed_parameters(state, task, clock + 1) {
            return Some(answer);
        }
        let is_complete = state.version > clock;
        let present = state.number();
        if is_complete && waiting.pushed.is_some_and(|pushed| pushed != present) {
            // With backup workers a step, and a new view, does not wait for this thread.
            return Some(moved(state, Vec::new()));
        }
        if self.drops_pushes()
            && let Some(answer) = waiting.ask_coordinator(state, true)
        {
            // The step may be complete without the departed workers, so no later check would report
            // them.
            return Some(answer);
        }
        if is_complete {
            return Some(answer_complete_step(rules, state, waiting));
        }
        if let Some(sum) = state.step.sum()
            && state.is_chief(task)
        {
            let square = sum.square;
            return Some(ShardAnswer::Norm { clock, square });
        }
        if let Some(answer) = rules.after_end(state, &mut waiting.buffer) {
            return Some(answer);
        }
        // A departed worker that has pushed the step still takes part in it.
        let answer = waiting.ask_coordinator(state, state.cannot_complete())?;
        state.awaits_decision = true;
        Some(answer)
    }

    fn view_to_pull(&self, state: &ShardState, task: TaskId) -> u64 {
        if state.has_member(task) {
            // The step before the next view waits for the gradients of each member.
            0
        } else {
            state.next_view().map_or(0, |view| view.number)
        }
    }

    fn may_begin(&self, state: &ShardState, from: u64) -> bool {
        from == state.version || from == state.version + 1
    }

    fn is_due(&self, state: &ShardState, pending: &PendingChange) -> bool {
        state.version == pending.from
    }

    fn is_open_before(&self, state: &ShardState, from: u64) -> bool {
        state.version < from
    }

    fn clock_in(&self, copy: &ShardReplica, _: TaskId) -> u64 {
        copy.version
    }
}

/// Answers a worker whose step is complete, under the present view.
fn answer_complete_step(
    rules: &ShardRules,
    state: &mut ShardState,
    waiting: &WaitingWorker,
) -> ShardAnswer {
    let task = waiting.task;
    let Some(member) = state.member(task) else {
        // The coordinator has removed this worker as lost, although it is not.
        return moved(state, Vec::new());
    };
    let buffer = member.take_spare();
    let deltas = state.encoding.deltas.clone();
    // A worker at a promoted replica may not know the view.
    let may_not_know = waiting.pushed.is_none() && rules.is_promoted();
    let view = state.view.clone().filter(|_| may_not_know);
    rules.parameters(state, task, buffer, view, deltas)
}
