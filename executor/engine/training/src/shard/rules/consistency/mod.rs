//! Consistency models: when a shard applies a push, and when its worker may continue.
//!
//! - [`bsp`]: bulk synchronous parallel, with or without backup workers.
//! - [`ssp`]: stale synchronous parallel and asynchronous parallel.

mod bsp;
mod ssp;
#[cfg(test)]
mod tests;

use super::super::messages::{Push, ShardAnswer};
use super::super::replica::ShardReplica;
use super::super::state::{PendingChange, ShardState};
use super::ShardRules;
use bsp::Bsp;
use muster_compute::clock;
use muster_model::id::TaskId;
use muster_model::spec::Consistency;
use ssp::Ssp;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time after which the coordinator is asked about a worker of the view that has not connected.
const AWAITED_AFTER: Duration = Duration::from_millis(300);

/// Rules of a consistency model.
pub trait ConsistencyModel: fmt::Debug + Send + Sync {
    /// Whether all workers make each step together. Otherwise each push is an update of its own.
    fn is_synchronous(&self) -> bool;

    /// Whether a step may end without the gradients of some workers. Their pushes are then dropped,
    /// and they continue with the newest parameters.
    fn drops_pushes(&self) -> bool {
        false
    }

    /// Whether each step contains the gradients of all workers. All answered workers then have the
    /// same parameters, those of the previous step.
    fn counts_every_worker(&self) -> bool {
        self.is_synchronous() && !self.drops_pushes()
    }

    /// Returns the factor for a sum of gradients over `targets` targets.
    fn scale(&self, rules: &ShardRules, targets: u64) -> f32;

    /// Returns the step at which training continues.
    fn next_step(&self, state: &ShardState) -> u64;

    /// Returns the step that answers report as that of the slowest worker.
    fn slowest(&self, state: &ShardState) -> u64;

    /// Decides on the push of step `clock` by a worker that knows the present view.
    fn admit(&self, state: &ShardState, task: TaskId, clock: u64) -> Admission;

    /// Takes the push of a member of the view, whose clock is already that of the next step.
    /// Applies what is complete. Returns the buffer of the push if it is free.
    fn take(
        &self,
        rules: &ShardRules,
        state: &mut ShardState,
        task: TaskId,
        push: Push,
    ) -> Vec<f32>;

    /// Applies the present step if it is complete.
    fn complete_step(&self, rules: &ShardRules, state: &mut ShardState);

    /// Returns the answer to a worker that waits; `None` if it must wait longer.
    fn answer(
        &self,
        rules: &ShardRules,
        state: &mut ShardState,
        waiting: &mut WaitingWorker,
    ) -> Option<ShardAnswer>;

    /// Returns the number of the view under which a worker pulls that knows none.
    fn view_to_pull(&self, state: &ShardState, task: TaskId) -> u64;

    /// Whether a view may be announced that begins at step `from`.
    fn may_begin(&self, state: &ShardState, from: u64) -> bool;

    /// Whether the announced view begins now.
    fn is_due(&self, state: &ShardState, pending: &PendingChange) -> bool;

    /// Whether steps before `from` are open, so that they can do without a removed worker.
    fn is_open_before(&self, state: &ShardState, from: u64) -> bool;

    /// Returns the next step of a worker in a replica.
    fn clock_in(&self, copy: &ShardReplica, task: TaskId) -> u64;
}

/// Decision on a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The push is taken, if it is the worker's next one.
    Taken,
    /// The push must wait: its step is ahead of this shard.
    Early,
    /// The push is dropped: its step is complete. The worker continues at once.
    Late,
    /// The push is dropped: its step is summed already. The worker waits for the end of the step.
    Excluded,
}

/// A worker that waits for the answer to its push.
#[derive(Debug)]
pub struct WaitingWorker {
    task: TaskId,
    /// Step of the push.
    clock: u64,
    /// View of the push; `None` if it was certainly the view of that step.
    pushed: Option<u64>,
    /// Buffer of the push, if it is free.
    buffer: Vec<f32>,
    began: Instant,
}

impl WaitingWorker {
    /// Creates a worker that waits from now on.
    pub fn new(task: TaskId, clock: u64) -> Self {
        Self {
            task,
            clock,
            pushed: None,
            buffer: Vec::new(),
            began: clock::now(),
        }
    }

    /// Sets the view of the push.
    pub fn with_view(self, number: u64) -> Self {
        Self {
            pushed: Some(number),
            ..self
        }
    }

    /// Sets the free buffer of the push.
    pub fn with_buffer(self, buffer: Vec<f32>) -> Self {
        Self { buffer, ..self }
    }

    fn take_buffer(&mut self) -> Vec<f32> {
        std::mem::take(&mut self.buffer)
    }

    /// Returns [`ShardAnswer::Gone`] if this worker is the coordinator and must decide on workers
    /// first. These are the departed ones, if the wait `depends_on_departed`. If there are none,
    /// they are those that have not connected in time.
    fn ask_coordinator(
        &mut self,
        state: &ShardState,
        depends_on_departed: bool,
    ) -> Option<ShardAnswer> {
        if !state.is_chief(self.task) {
            return None;
        }
        let mut departed = if depends_on_departed {
            state.departed()
        } else {
            Vec::new()
        };
        if departed.is_empty() && self.began.elapsed() >= AWAITED_AFTER {
            departed.extend(state.awaited());
        }
        if departed.is_empty() {
            return None;
        }
        let buffer = self.take_buffer();
        Some(ShardAnswer::Gone { departed, buffer })
    }
}

/// Returns the rules of a job's consistency model.
pub fn model_of(consistency: Consistency) -> Arc<dyn ConsistencyModel> {
    match consistency {
        Consistency::Bsp { backup } => Arc::new(Bsp { backup }),
        Consistency::Ssp {
            staleness, rate, ..
        } => Arc::new(Ssp {
            staleness: u64::from(staleness),
            rate,
        }),
        Consistency::Asp { rate } => Arc::new(Ssp {
            staleness: u64::MAX,
            rate,
        }),
    }
}
