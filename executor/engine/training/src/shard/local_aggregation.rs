//! Gradients that workers of one node have summed and one of them pushes for all (local
//! aggregation), under BSP.
//!
//! A shard counts the sum as a push of each of these workers, or refuses it. It refuses it if one
//! of them has pushed alone. Workers do so if they do not know the result of the sum, because one
//! of them has gone. So each worker's gradients are in a step once, and a step is complete exactly
//! when it would be with separate pushes.

use super::exchange::{ShardExchange, moved};
use super::messages::{AggregatedWorkers, ConnectionId, RequestRefusal, ShardAnswer};
use super::state::ShardState;
use muster_comm::wire::metadata::SumHead;
use muster_model::id::TaskId;

impl From<SumHead> for AggregatedWorkers {
    fn from(head: SumHead) -> Self {
        let SumHead {
            squares,
            inverses,
            others,
            ..
        } = head;
        Self {
            others,
            squares,
            inverses,
        }
    }
}

impl ShardExchange {
    /// Whether such sums are possible: all workers are waited for, and gradients are not encoded.
    #[must_use]
    pub fn takes_sums(&self) -> bool {
        self.is_bsp() && self.backup() == 0 && self.recipe.codecs.is_none()
    }

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
        if state.finished {
            return Ok(ShardAnswer::Finished);
        }
        if let Some(lost) = state.chief_lost {
            return Ok(self.interrupted(&state, lost, Vec::new()));
        }
        if state.owes(connection_id.task, clock + 1) {
            return Ok(self.answer_bsp(state, connection_id, None, clock));
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
        Ok(self.answer_bsp(state, connection_id, None, clock))
    }
}

impl ShardState {
    /// Whether another worker has pushed this worker's gradients of `clock`.
    pub fn is_covered(&mut self, task: TaskId, clock: u64) -> bool {
        self.member(task)
            .is_some_and(|member| member.covered == Some(clock))
    }

    /// Whether this worker is owed the answer to the last step of an ended view; the next step is
    /// `next`.
    fn owes(&self, task: TaskId, next: u64) -> bool {
        let mut former = self.former.iter().filter(|former| former.clock == next);
        former.any(|former| former.owed.iter().any(|(owed, _)| *owed == task))
    }

    /// Records that the step `clock` contains the gradients of these workers. Returns `false`
    /// without a change if it contains some of them already, or one of them is not in the view.
    pub fn cover(&mut self, others: &[TaskId], clock: u64) -> bool {
        let is_open = |state: &mut Self, task| {
            let member = state.member(task);
            member.is_some_and(|member| member.clock == clock && member.push.is_none())
        };
        if !others.iter().all(|&task| is_open(self, task)) {
            return false;
        }
        self.forget_owed(|former, task| former.clock <= clock && others.contains(&task));
        for &task in others {
            let member = self.member(task).expect("it was just looked at");
            member.covered = Some(clock);
            member.clock = clock + 1;
        }
        true
    }
}
