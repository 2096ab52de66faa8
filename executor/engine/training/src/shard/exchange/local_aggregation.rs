//! Gradients that workers of one node have summed and one of them pushes for all (local
//! aggregation), under BSP.
//!
//! A shard counts the sum as a push of each of these workers, or refuses it. It refuses it if one
//! of them has pushed alone. Workers do so if they do not know the result of the sum, because one
//! of them has gone. So each worker's gradients are in a step once, and a step is complete exactly
//! when it would be with separate pushes.

use super::super::messages::{ConnectionId, RequestRefusal, ShardAnswer};
use super::super::rules::{WaitingWorker, moved};
use super::ShardExchange;

impl ShardExchange {
    /// Waits until a worker may continue whose gradients of `clock` another worker may have pushed.
    /// Returns [`ShardAnswer::Absent`] if they have not arrived: the worker must push them.
    ///
    /// # Errors
    /// [`RequestRefusal::StalePush`] for another step than its newest.
    pub fn await_answer(
        &self,
        connection_id: ConnectionId,
        clock: u64,
    ) -> Result<ShardAnswer, RequestRefusal> {
        let mut state = self.lock();
        if let Some(answer) = self.rules.after_end(&state, &mut Vec::new()) {
            return Ok(answer);
        }
        let waiting = WaitingWorker::new(connection_id.task, clock);
        if state.owed.contains(connection_id.task, clock + 1) {
            return Ok(self.answer(state, waiting));
        }
        if state.view.is_none() {
            return Err(RequestRefusal::NotInitialised);
        }
        let Some(expected) = state.member(connection_id.task).map(|member| member.clock) else {
            return Ok(moved(&state, Vec::new()));
        };
        if expected == clock {
            return Ok(ShardAnswer::Absent { buffer: Vec::new() });
        }
        if expected != clock + 1 {
            return Err(RequestRefusal::StalePush {
                task: connection_id.task,
                pushed: clock,
                expected,
            });
        }
        Ok(self.answer(state, waiting))
    }
}
