//! Residuals of the workers' gradients, on their way into a checkpoint and back. A shard passes
//! them between the coordinator and the workers, which have no connection to each other.
//!
//! The coordinator announces one step ahead at which step a checkpoint begins, because residuals
//! cannot be determined afterwards. Under BSP without backup workers all workers send theirs at
//! that step. Under SSP and ASP no step is common to all workers; [`consistent_snapshot`] describes
//! how each shard finds a consistent moment.

mod consistent_snapshot;

use super::exchange::ShardExchange;
use super::messages::{ConnectionId, RequestRefusal};
use super::state::{ShardState, WorkerStatus};
use consistent_snapshot::UpcomingResidual;
use muster_comm::assign::load;
use muster_compute::clock;
use muster_model::id::TaskId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Time for which a shard that is new in a view waits for a worker that must send its residual. The
/// worker connects right after the answer to its step.
const COMES_WITHIN: Duration = Duration::from_secs(10);

/// Maximum number of planes of a codec.
const MOST_PLANES: usize = 2;

/// Residuals of all workers at a shard.
#[derive(Debug, Default)]
pub(super) struct WorkerResiduals {
    /// Step at whose beginning all workers send their residuals.
    at: Option<u64>,
    /// Residuals that have arrived, for the coordinator.
    by_worker: BTreeMap<TaskId, Vec<f32>>,
    /// Residuals that hold once the push before them is applied.
    coming: BTreeMap<TaskId, UpcomingResidual>,
    /// Workers that were asked for this checkpoint; each is asked once.
    asked: BTreeSet<TaskId>,
    /// Residuals of a checkpoint from the coordinator, which each worker fetches before its first
    /// push.
    dealt: BTreeMap<TaskId, Vec<f32>>,
}

impl WorkerResiduals {
    /// Whether a worker must send its residual before step `clock`.
    pub fn is_due(&self, clock: u64) -> bool {
        self.at == Some(clock)
    }

    /// Forgets residuals of steps before `version`. Those of a checkpoint stay until they are
    /// fetched: under SSP and ASP their worker may still connect.
    pub fn forget_before(&mut self, version: u64) {
        if self.at.is_none_or(|at| at < version) {
            self.at = None;
            self.forget_said();
        }
    }

    fn forget_said(&mut self) {
        self.by_worker.clear();
        self.coming.clear();
        self.asked.clear();
    }
}

impl ShardExchange {
    /// Coordinator: makes every worker send its residual before step `clock`.
    ///
    /// # Errors
    /// [`RequestRefusal::NotChief`].
    pub(super) fn keep(
        &self,
        connection_id: ConnectionId,
        clock: u64,
    ) -> Result<(), RequestRefusal> {
        let mut state = self.lock();
        if !state.is_chief(connection_id.task) {
            return Err(RequestRefusal::NotChief);
        }
        state.residuals.at = Some(clock);
        state.residuals.forget_said();
        // Under SSP and ASP workers that wait for an answer are asked during the wait.
        self.notify();
        Ok(())
    }

    /// Whether `numbers` values can be a worker's residual for this shard's part. Waits for the
    /// first view, which a worker may know from another shard earlier.
    pub(super) fn may_hold(&self, numbers: usize) -> bool {
        let mut state = self.lock();
        while state.view.is_none() && !state.finished && state.chief_lost.is_none() {
            state = self.wait(state);
        }
        let pieces = state
            .view
            .as_ref()
            .map_or(0, |view| load(view.pieces(self.me)));
        numbers == 0
            || pieces > 0 && numbers.is_multiple_of(pieces) && numbers / pieces <= MOST_PLANES
    }

    /// Returns the maximum number of values of a residual, for any pieces.
    pub(super) fn most_held(&self) -> usize {
        MOST_PLANES * self.recipe.parameters()
    }

    /// Stores the residual of worker `of`: its own, or one that the coordinator sends for it.
    ///
    /// # Errors
    /// [`RequestRefusal::NotChief`] when another worker sends it.
    pub(super) fn hold(
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
            state.residuals.by_worker.insert(of, values)
        } else {
            state.residuals.dealt.insert(of, values)
        };
        self.notify();
        Ok(())
    }

    /// Returns the residual of worker `of`. The worker itself gets the one from the checkpoint. The
    /// coordinator gets the one that the worker sends, and waits for it; it is empty if the worker
    /// will send none. The coordinator asks only for workers that must send theirs.
    ///
    /// # Errors
    /// [`RequestRefusal::NotChief`] when another worker asks.
    pub(super) fn fetch(
        &self,
        connection_id: ConnectionId,
        of: TaskId,
    ) -> Result<Vec<f32>, RequestRefusal> {
        let began = clock::now();
        let mut state = self.lock();
        if connection_id.task == of {
            return Ok(state.residuals.dealt.remove(&of).unwrap_or_default());
        }
        if !state.is_chief(connection_id.task) {
            return Err(RequestRefusal::NotChief);
        }
        if self.is_heard_singly() {
            return Ok(state.residuals.by_worker.remove(&of).unwrap_or_default());
        }
        loop {
            if let Some(values) = state.residuals.by_worker.get(&of) {
                return Ok(values.clone());
            }
            let is_late = began.elapsed() >= COMES_WITHIN;
            if !state.hands_over(of, is_late) || state.finished {
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
        let is_due = self.residuals.at.is_some();
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
