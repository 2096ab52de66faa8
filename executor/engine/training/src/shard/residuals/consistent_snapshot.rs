//! Consistent snapshots under SSP and ASP, while all workers continue. Each shard finds a moment at
//! which it knows its own values and the residual of each worker.
//!
//! A worker's residual for a shard's part changes only with its pushes to that shard. So from the
//! coordinator's announcement on each push is followed by the residual after it, and both count at
//! the same time. A worker whose last push had no residual is asked for it while it waits for its
//! answer. Whenever the residuals of all workers have arrived, they are consistent with the shard's
//! values. The coordinator's snapshot is taken at the first such moment. This is the marker
//! algorithm of Chandy and Lamport (ACM TOCS 1985), in which the sender reports the content of a
//! channel.
//!
//! The cost: each push between announcement and snapshot also sends a dense residual. While the
//! coordinator waits for the slowest worker it makes no steps, so the others advance as far as the
//! staleness bound permits. The coordinator limits that wait. Each shard has a moment of its own,
//! like its snapshot. Backup workers have no such snapshots: no step is complete without the
//! coordinator, and they exist to avoid waits for the slowest worker.

use super::super::exchange::ShardExchange;
use super::super::messages::ConnectionId;
use super::super::state::{ShardState, WorkerStatus};
use muster_comm::log;
use muster_compute::clock;
use muster_model::id::TaskId;
use std::sync::MutexGuard;
use std::time::Duration;

/// Residual after a push that is not applied yet.
#[derive(Debug)]
pub(in crate::shard) struct UpcomingResidual {
    /// The step after that of the push.
    clock: u64,
    values: Vec<f32>,
}

impl ShardExchange {
    /// Whether pushes are encoded under SSP or ASP, so that each worker sends residuals by itself.
    pub(in crate::shard) fn is_heard_singly(&self) -> bool {
        self.recipe.codecs.is_some() && !self.is_bsp()
    }

    /// Whether a worker's next push must be followed by its residual.
    pub(in crate::shard) fn is_to_say(&self, state: &ShardState, worker: TaskId) -> bool {
        self.is_heard_singly() && state.residuals.at.is_some() && !state.is_chief(worker)
    }

    /// Whether to ask a worker that waits for an answer for its residual; records that it was
    /// asked.
    pub(in crate::shard) fn asks(&self, state: &mut ShardState, worker: TaskId) -> bool {
        self.is_to_say(state, worker)
            && !state.residuals.by_worker.contains_key(&worker)
            && state.residuals.asked.insert(worker)
    }

    /// Stores the residual of this worker after its push of the step before `clock`.
    pub(in crate::shard) fn hear_held(
        &self,
        connection_id: ConnectionId,
        clock: u64,
        values: Vec<f32>,
    ) {
        let mut state = self.lock();
        if !self.is_to_say(&state, connection_id.task) {
            return;
        }
        let Some(member) = state.member(connection_id.task) else {
            // The coordinator has removed the worker; the residual may belong to other pieces.
            return;
        };
        if member.clock >= clock {
            state.residuals.by_worker.insert(connection_id.task, values);
        } else {
            let coming = UpcomingResidual { clock, values };
            state.residuals.coming.insert(connection_id.task, coming);
        }
        self.notify();
    }

    /// Forgets the residual of a push that will not be applied, because its view has ended.
    pub(in crate::shard) fn forget_coming(&self, connection_id: ConnectionId) {
        self.lock().residuals.coming.remove(&connection_id.task);
    }

    /// Coordinator: waits, at most `within`, for a moment at which the residuals of all pushing
    /// workers have arrived, and keeps them. Workers whose residuals are missing afterwards are
    /// left out.
    pub(in crate::shard) fn hear_all<'a>(
        &'a self,
        mut state: MutexGuard<'a, ShardState>,
        within: Duration,
    ) -> MutexGuard<'a, ShardState> {
        let began = clock::now();
        let next = state.next_step(self.consistency);
        if !self.is_heard_singly() || state.residuals.at.is_none_or(|at| at > next) {
            return state;
        }
        loop {
            let unheard = state.unheard();
            let is_late = began.elapsed() >= within;
            if unheard.is_empty() || state.finished || is_late {
                if !unheard.is_empty() {
                    let names: Vec<String> = unheard.iter().map(ToString::to_string).collect();
                    log::line(format_args!(
                        "the checkpoint is written without the residuals of these workers, which did not send them within {within:?}: {}",
                        names.join(", ")
                    ));
                }
                state.residuals.at = None;
                state.residuals.coming.clear();
                return state;
            }
            state = self.wait_a_while(state);
        }
    }
}

impl ShardState {
    /// Makes the residual valid that belongs to the worker's push of the step before `clock`, which
    /// is applied now.
    pub(in crate::shard) fn now_holds(&mut self, worker: TaskId, clock: u64) {
        let residuals = &mut self.residuals;
        if residuals.at.is_none() {
            return;
        }
        match residuals.coming.remove(&worker) {
            Some(coming) if coming.clock == clock => {
                residuals.by_worker.insert(worker, coming.values);
            }
            // An earlier residual belongs to an earlier push.
            _ => {
                residuals.by_worker.remove(&worker);
            }
        }
    }

    /// Forgets the residuals, which belong to previous pieces.
    pub(in crate::shard) fn forget_said(&mut self) {
        self.residuals.forget_said();
    }

    /// Returns the workers whose residuals are missing and can still arrive.
    fn unheard(&self) -> Vec<TaskId> {
        let (joined, chief) = (WorkerStatus::Joined, self.chief);
        let mut all: Vec<TaskId> = self
            .members
            .iter()
            .filter(|member| member.standing == joined && Some(member.task) != chief)
            .map(|member| member.task)
            .collect();
        all.retain(|task| !self.residuals.by_worker.contains_key(task));
        all
    }
}
