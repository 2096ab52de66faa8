//! What workers hold back of their gradients, on its way into a checkpoint and out of it again: a shard carries it between the chief and
//! the others, who have no connection of their own.
//!
//! The chief says one step ahead which step's beginning a checkpoint is of, as nobody can tell afterwards what was held back then. Only
//! where every worker's push is waited for: elsewhere a checkpoint is of no one step of all.

use super::exchange::Exchange;
use super::state::{Standing, State};
use super::words::{Refusal, Seat};
use crate::assign::load;
use muster_model::id::TaskId;
use std::collections::BTreeMap;

/// Planes that codecs carry.
const MOST_PLANES: usize = 2;

/// What of all workers lies at a shard.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// At the beginning of this step everybody hands over.
    at: Option<u64>,
    by_worker: BTreeMap<TaskId, Vec<f32>>,
}

impl Held {
    /// Whether whoever goes on with step `clock` hands over first.
    pub fn is_due(&self, clock: u64) -> bool {
        self.at == Some(clock)
    }

    /// Steps before `version` are done.
    pub fn forget_before(&mut self, version: u64) {
        if self.at.is_none_or(|at| at < version) {
            *self = Self::default();
        }
    }
}

impl Exchange {
    /// Chief: whoever goes on with step `clock` hands over first what it holds back.
    ///
    /// # Errors
    /// [`Refusal::NotChief`].
    pub(super) fn keep(&self, seat: Seat, clock: u64) -> Result<(), Refusal> {
        let mut state = self.lock();
        if !state.is_chief(seat.task) {
            return Err(Refusal::NotChief);
        }
        state.held = Held {
            at: Some(clock),
            by_worker: BTreeMap::new(),
        };
        Ok(())
    }

    /// Whether so many numbers may be what one worker holds back of this shard's part.
    pub(super) fn may_hold(&self, numbers: usize) -> bool {
        let state = self.lock();
        let pieces = state
            .view
            .as_ref()
            .map_or(0, |view| load(view.pieces(self.me)));
        numbers == 0
            || pieces > 0 && numbers.is_multiple_of(pieces) && numbers / pieces <= MOST_PLANES
    }

    /// What `of` holds back, as it says itself or, to be fetched by it, the chief.
    ///
    /// # Errors
    /// [`Refusal::NotChief`] when another says so.
    pub(super) fn hold(&self, seat: Seat, of: TaskId, values: Vec<f32>) -> Result<(), Refusal> {
        let mut state = self.lock();
        if seat.task != of && !state.is_chief(seat.task) {
            return Err(Refusal::NotChief);
        }
        state.held.by_worker.insert(of, values);
        self.notify();
        Ok(())
    }

    /// What `of` holds back: for itself what is here, for the chief once it is; nothing when it will not be.
    ///
    /// # Errors
    /// [`Refusal::NotChief`] when another asks.
    pub(super) fn fetch(&self, seat: Seat, of: TaskId) -> Result<Vec<f32>, Refusal> {
        let mut state = self.lock();
        if seat.task == of {
            return Ok(state.held.by_worker.remove(&of).unwrap_or_default());
        }
        if !state.is_chief(seat.task) {
            return Err(Refusal::NotChief);
        }
        loop {
            if let Some(values) = state.held.by_worker.get(&of) {
                return Ok(values.clone());
            }
            if !state.hands_over(of) || state.finished {
                return Ok(Vec::new());
            }
            state = self.wait(state);
        }
    }
}

impl State {
    /// Whether `worker` was, or will be, told to.
    fn hands_over(&mut self, worker: TaskId) -> bool {
        let Some(at) = self.held.at else {
            return false;
        };
        let member = self.member(worker);
        member.is_some_and(|member| member.standing == Standing::Joined && member.since < at)
    }
}
