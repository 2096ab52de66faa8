//! SSP with staleness s (Ho et al., NIPS 2013): a push is applied at once. It is answered when the
//! worker is at most s steps ahead of the slowest. ASP (Dean et al., NIPS 2012) has no bound.
//!
//! A gradient is a sum over examples, scaled by 1 over the *global* batch, as under BSP. So the
//! pushes of one step together move plain SGD as far as one BSP step, for any number of workers.

use super::super::super::messages::{Push, ShardAnswer};
use super::super::super::replica::ShardReplica;
use super::super::super::state::{PendingChange, ShardState};
use super::super::super::tensors::Factors;
use super::super::ShardRules;
use super::{Admission, ConsistencyModel, WaitingWorker};
use muster_model::id::TaskId;
use muster_model::spec::Rate;
use std::sync::Arc;

/// Stale synchronous parallel.
#[derive(Debug)]
pub struct Ssp {
    /// Maximum number of steps that a worker may be ahead of the slowest.
    pub staleness: u64,
    /// Learning rate of updates by old parameters.
    pub rate: Rate,
}

impl ConsistencyModel for Ssp {
    fn is_synchronous(&self) -> bool {
        false
    }

    fn scale(&self, rules: &ShardRules, _: u64) -> f32 {
        rules.grad_scale
    }

    fn next_step(&self, state: &ShardState) -> u64 {
        let chief = state.members.first();
        chief.map_or(state.version, |chief| chief.clock)
    }

    fn slowest(&self, state: &ShardState) -> u64 {
        state.slowest()
    }

    fn admit(&self, _: &ShardState, _: TaskId, _: u64) -> Admission {
        Admission::Taken
    }

    fn take(
        &self,
        rules: &ShardRules,
        state: &mut ShardState,
        task: TaskId,
        mut push: Push,
    ) -> Vec<f32> {
        let update = state.updates;
        let (read_at, next) = state
            .member(task)
            .map_or((0, 0), |member| (member.read_at, member.clock));
        let factors = Factors {
            scale: self.scale(rules, push.targets),
            rate: match self.rate {
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
        state.report.stats.add(push.stats);
        state.residuals.now_holds(task, next);
        rules.ship(state, &push.gradients, factors);
        push.gradients
    }

    fn complete_step(&self, _: &ShardRules, _: &mut ShardState) {}

    fn answer(
        &self,
        rules: &ShardRules,
        state: &mut ShardState,
        waiting: &mut WaitingWorker,
    ) -> Option<ShardAnswer> {
        let task = waiting.task;
        if let Some(answer) = rules.after_end(state, &mut waiting.buffer) {
            return Some(answer);
        }
        if let Some(answer) = waiting.ask_coordinator(state, true) {
            return Some(answer);
        }
        if let Some(next) = state.next_view()
            && !state.is_chief(task)
        {
            return Some(ShardAnswer::Moved {
                view: Arc::new(next.clone()),
                buffer: waiting.take_buffer(),
            });
        }
        let clock = state.member(task).map_or(0, |member| member.clock);
        if rules.asks(state, task) {
            let buffer = waiting.take_buffer();
            return Some(ShardAnswer::HandOver { clock, buffer });
        }
        if clock.saturating_sub(state.slowest()) > self.staleness {
            return None;
        }
        Some(rules.parameters(state, task, waiting.take_buffer(), None, None))
    }

    fn view_to_pull(&self, state: &ShardState, _: TaskId) -> u64 {
        state.next_view().map_or(0, |view| view.number)
    }

    fn may_begin(&self, state: &ShardState, from: u64) -> bool {
        from == self.next_step(state)
    }

    /// A view begins once each worker of the previous one has pulled under it, has left or is lost.
    fn is_due(&self, state: &ShardState, pending: &PendingChange) -> bool {
        state.all_entered(pending.change.view.number)
    }

    fn is_open_before(&self, _: &ShardState, _: u64) -> bool {
        true
    }

    fn clock_in(&self, copy: &ShardReplica, task: TaskId) -> u64 {
        copy.clocks.get(&task).copied().unwrap_or(copy.version)
    }
}
