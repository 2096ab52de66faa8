//! Waits of workers for their answers.

use super::super::messages::{ConnectionId, ShardAnswer};
use super::super::rules::moved;
use super::super::state::ShardState;
use super::ShardExchange;
use muster_comm::wire::view::Departed;
use muster_compute::clock;
use muster_model::spec::Consistency;
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
            let task = connection_id.task;
            if let Some(answer) = self.rules.owed_parameters(&mut state, task, clock + 1) {
                return answer;
            }
            // With backup workers a step, and a new view, does not wait for this thread.
            if state.version > clock && pushed.is_some_and(|pushed| pushed != state.number()) {
                return moved(&state, Vec::new());
            }
            // With backup workers the step may be complete without the departed workers, so no
            // later check would report them.
            if self.rules.backup() > 0 && state.is_chief(task) {
                let departed = self.to_decide_on(&state, began);
                if !departed.is_empty() {
                    let buffer = Vec::new();
                    return ShardAnswer::Gone { departed, buffer };
                }
            }
            if state.version > clock {
                let Some(member) = state.member(task) else {
                    // The coordinator has removed this worker as lost, although it is not.
                    return moved(&state, Vec::new());
                };
                let buffer = member.take_spare();
                let deltas = state.encoding.deltas.clone();
                // A worker at a promoted replica may not know the view.
                let view = state
                    .view
                    .clone()
                    .filter(|_| pushed.is_none() && self.rules.is_promoted());
                return self
                    .rules
                    .parameters(&mut state, task, buffer, view, deltas);
            }
            if let Some(sum) = state.step.sum()
                && state.is_chief(task)
            {
                let square = sum.square;
                return ShardAnswer::Norm { clock, square };
            }
            if let Some(answer) = self.rules.after_end(&state, &mut Vec::new()) {
                return answer;
            }
            if state.is_chief(task) {
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
        let mut out = if self.rules.is_bsp() && self.rules.backup() == 0 && !state.cannot_complete()
        {
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

    /// SSP and ASP: waits until the worker may continue.
    pub(super) fn answer_stale(
        &self,
        mut state: MutexGuard<'_, ShardState>,
        connection_id: ConnectionId,
        mut buffer: Vec<f32>,
    ) -> ShardAnswer {
        let began = clock::now();
        let task = connection_id.task;
        let staleness = match self.rules.consistency {
            Consistency::Ssp { staleness, .. } => u64::from(staleness),
            Consistency::Bsp { .. } | Consistency::Asp { .. } => u64::MAX,
        };
        loop {
            if let Some(answer) = self.rules.after_end(&state, &mut buffer) {
                return answer;
            }
            if state.is_chief(task) {
                let departed = self.to_decide_on(&state, began);
                if !departed.is_empty() {
                    return ShardAnswer::Gone { departed, buffer };
                }
            } else if let Some(next) = state.next_view() {
                let view = Arc::new(next.clone());
                return ShardAnswer::Moved { view, buffer };
            }
            let slowest = state.slowest();
            let clock = state.member(task).map_or(0, |member| member.clock);
            if self.rules.asks(&mut state, task) {
                return ShardAnswer::HandOver { clock, buffer };
            }
            if clock.saturating_sub(slowest) <= staleness {
                return self.rules.parameters(&mut state, task, buffer, None, None);
            }
            state = self.wait_a_while(state);
        }
    }
}
