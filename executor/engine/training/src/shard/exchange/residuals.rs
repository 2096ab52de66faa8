//! Residuals of the workers' gradients, on their way into a checkpoint and back. A shard passes
//! them between the coordinator and the workers, which have no connection to each other.
//!
//! The coordinator announces one step ahead at which step a checkpoint begins, because residuals
//! cannot be determined afterwards. Under BSP without backup workers all workers send theirs at
//! that step. Under SSP and ASP no step is common to all workers; [`super::consistent_snapshot`]
//! describes how each shard finds a consistent moment.

use super::super::messages::{ConnectionId, RequestRefusal};
use super::super::state::{ShardState, WorkerStatus};
use super::ShardExchange;
use muster_comm::assign::load;
use muster_compute::clock;
use muster_model::id::TaskId;
use std::time::Duration;

/// Time for which a shard that is new in a view waits for a worker that must send its residual. The
/// worker connects right after the answer to its step.
const COMES_WITHIN: Duration = Duration::from_secs(10);

/// Maximum number of planes of a codec.
const MOST_PLANES: usize = 2;

impl ShardExchange {
    /// Coordinator: makes every worker send its residual before step `clock`.
    ///
    /// # Errors
    /// [`RequestRefusal::NotChief`].
    pub(in crate::shard) fn keep(
        &self,
        connection_id: ConnectionId,
        clock: u64,
    ) -> Result<(), RequestRefusal> {
        let mut state = self.lock_as_chief(connection_id)?;
        state.residuals.announce(clock);
        // Under SSP and ASP workers that wait for an answer are asked during the wait.
        self.notify();
        Ok(())
    }

    /// Whether `numbers` values can be a worker's residual for this shard's part. Waits for the
    /// first view, which a worker may know from another shard earlier.
    pub(in crate::shard) fn may_hold(&self, numbers: usize) -> bool {
        let mut state = self.lock();
        while state.view.is_none() && !state.ending.is_over() {
            state = self.wait(state);
        }
        let pieces = state
            .view
            .as_ref()
            .map_or(0, |view| load(view.pieces(self.rules.me)));
        numbers == 0
            || pieces > 0 && numbers.is_multiple_of(pieces) && numbers / pieces <= MOST_PLANES
    }

    /// Returns the maximum number of values of a residual, for any pieces.
    pub(in crate::shard) fn most_held(&self) -> usize {
        MOST_PLANES * self.rules.recipe.parameters()
    }

    /// Stores the residual of worker `of`: its own, or one that the coordinator sends for it.
    ///
    /// # Errors
    /// [`RequestRefusal::NotChief`] when another worker sends it.
    pub(in crate::shard) fn hold(
        &self,
        connection_id: ConnectionId,
        of: TaskId,
        values: Vec<f32>,
    ) -> Result<(), RequestRefusal> {
        let mut state = self.lock();
        if connection_id.task != of && !state.is_chief(connection_id.task) {
            return Err(RequestRefusal::NotChief);
        }
        if connection_id.task == of {
            state.residuals.hear(of, values);
        } else {
            state.residuals.deal(of, values);
        }
        self.notify();
        Ok(())
    }

    /// Returns the residual of worker `of`. The worker itself gets the one from the checkpoint. The
    /// coordinator gets the one that the worker sends, and waits for it; it is empty if the worker
    /// will send none. The coordinator asks only for workers that must send theirs.
    ///
    /// # Errors
    /// [`RequestRefusal::NotChief`] when another worker asks.
    pub(in crate::shard) fn fetch(
        &self,
        connection_id: ConnectionId,
        of: TaskId,
    ) -> Result<Vec<f32>, RequestRefusal> {
        let began = clock::now();
        let mut state = self.lock();
        if connection_id.task == of {
            return Ok(state.residuals.take_dealt(of));
        }
        if !state.is_chief(connection_id.task) {
            return Err(RequestRefusal::NotChief);
        }
        if self.rules.is_heard_singly() {
            return Ok(state.residuals.take_heard(of));
        }
        loop {
            if let Some(values) = state.residuals.heard(of) {
                return Ok(values.clone());
            }
            let is_late = began.elapsed() >= COMES_WITHIN;
            if !state.hands_over(of, is_late) || state.ending.finished {
                return Ok(Vec::new());
            }
            state = self.wait_a_while(state);
        }
    }
}

impl ShardState {
    /// Whether `worker`, which must send its residual, still can. A worker that has not connected
    /// can until it `is_late`.
    fn hands_over(&mut self, worker: TaskId, is_late: bool) -> bool {
        let is_due = self.residuals.announced().is_some();
        let standing = self.member(worker).map(|member| member.standing);
        is_due
            && match standing {
                Some(WorkerStatus::Joined) => true,
                Some(WorkerStatus::Awaited) => !is_late,
                Some(WorkerStatus::Left | WorkerStatus::Lost | WorkerStatus::Dropped) | None => {
                    false
                }
            }
    }
}
