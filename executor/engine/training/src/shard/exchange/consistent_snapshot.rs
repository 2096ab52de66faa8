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

use super::super::messages::ConnectionId;
use super::super::state::{ShardState, WorkerStatus};
use super::ShardExchange;
use muster_comm::log;
use muster_compute::clock;
use muster_model::id::TaskId;
use std::sync::MutexGuard;
use std::time::Duration;

impl ShardExchange {
    /// Stores the residual of this worker after its push of the step before `clock`.
    pub(in crate::shard) fn hear_held(
        &self,
        connection_id: ConnectionId,
        clock: u64,
        values: Vec<f32>,
    ) {
        let mut state = self.lock();
        if !self.rules.is_to_say(&state, connection_id.task) {
            return;
        }
        let Some(member) = state.member(connection_id.task) else {
            // The coordinator has removed the worker; the residual may belong to other pieces.
            return;
        };
        if member.clock >= clock {
            state.residuals.hear(connection_id.task, values);
        } else {
            let worker = connection_id.task;
            state.residuals.hear_early(worker, clock, values);
        }
        self.notify();
    }

    /// Forgets the residual of a push that will not be applied, because its view has ended.
    pub(in crate::shard) fn forget_coming(&self, connection_id: ConnectionId) {
        self.lock().residuals.forget_early(connection_id.task);
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
        let next = self.rules.model.next_step(&state);
        if !self.rules.is_heard_singly() || state.residuals.announced().is_none_or(|at| at > next) {
            return state;
        }
        loop {
            let unheard = state.unheard();
            let is_late = began.elapsed() >= within;
            if unheard.is_empty() || state.ending.finished || is_late {
                if !unheard.is_empty() {
                    let names: Vec<String> = unheard.iter().map(ToString::to_string).collect();
                    log::line(format_args!(
                        "the checkpoint is written without the residuals of these workers, which did not send them within {within:?}: {}",
                        names.join(", ")
                    ));
                }
                state.residuals.close();
                return state;
            }
            state = self.wait_a_while(state);
        }
    }
}

impl ShardState {
    /// Returns the workers whose residuals are missing and can still arrive.
    fn unheard(&self) -> Vec<TaskId> {
        let (joined, chief) = (WorkerStatus::Joined, self.connected.chief);
        let mut all: Vec<TaskId> = self
            .members
            .iter()
            .filter(|member| member.standing == joined && Some(member.task) != chief)
            .map(|member| member.task)
            .collect();
        all.retain(|task| self.residuals.heard(*task).is_none());
        all
    }
}
