//! What workers hold back of their gradients, on its way into a checkpoint and out of it again: a shard carries it between the chief and
//! the others, who have no connection of their own.
//!
//! The chief says one step ahead which step's beginning a checkpoint is of, as nobody can tell afterwards what was held back then. Where every
//! worker's push is waited for, all hand over at that step. Under SSP and ASP a checkpoint is of no one step of all, and [`at_once`] is how
//! each shard finds a moment of which it knows everybody's part.

mod at_once;

use super::exchange::Exchange;
use super::state::{Standing, State};
use super::words::{Refusal, Seat};
use crate::assign::load;
use crate::clock;
use at_once::Coming;
use muster_model::id::TaskId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A shard that is new in a view waits so long for a worker that was told to hand over: it comes right after the answer of its step.
const COMES_WITHIN: Duration = Duration::from_secs(10);

/// Planes that codecs carry.
const MOST_PLANES: usize = 2;

/// What of all workers lies at a shard.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// At the beginning of this step everybody hands over.
    at: Option<u64>,
    /// What was handed over, for the chief to fetch.
    by_worker: BTreeMap<TaskId, Vec<f32>>,
    /// What holds once a push counts that does not yet.
    coming: BTreeMap<TaskId, Coming>,
    /// Who was asked for this checkpoint; nobody is twice.
    asked: BTreeSet<TaskId>,
    /// What the chief has dealt from a checkpoint, for each worker to fetch before its first push.
    dealt: BTreeMap<TaskId, Vec<f32>>,
}

impl Held {
    /// Whether whoever goes on with step `clock` hands over first.
    pub fn is_due(&self, clock: u64) -> bool {
        self.at == Some(clock)
    }

    /// Steps before `version` are done. What was dealt stays until it is fetched: where not every push is waited for, its worker may yet come.
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
        state.held.at = Some(clock);
        state.held.forget_said();
        // Who waits for an answer is asked while it does.
        self.notify();
        Ok(())
    }

    /// Whether so many numbers may be what one worker holds back of this shard's part. A worker may have heard of the first view from
    /// another shard before this one has from the chief.
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

    /// So many numbers a worker holds back at most, whatever pieces are here.
    pub(super) fn most_held(&self) -> usize {
        MOST_PLANES * self.recipe.parameters()
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
        match seat.task == of {
            true => state.held.by_worker.insert(of, values),
            false => state.held.dealt.insert(of, values),
        };
        self.notify();
        Ok(())
    }

    /// What `of` holds back: for itself what was dealt to it, for the chief what it hands over, once it has; nothing when it will not. The
    /// chief asks only of those who were told to.
    ///
    /// # Errors
    /// [`Refusal::NotChief`] when another asks.
    pub(super) fn fetch(&self, seat: Seat, of: TaskId) -> Result<Vec<f32>, Refusal> {
        let began = clock::now();
        let mut state = self.lock();
        if seat.task == of {
            return Ok(state.held.dealt.remove(&of).unwrap_or_default());
        }
        if !state.is_chief(seat.task) {
            return Err(Refusal::NotChief);
        }
        if self.is_heard_singly() {
            return Ok(state.held.by_worker.remove(&of).unwrap_or_default());
        }
        loop {
            if let Some(values) = state.held.by_worker.get(&of) {
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

impl State {
    /// Whether `worker`, who was told to, still may; one that has not come to this shard yet may until it `is_late`.
    fn hands_over(&mut self, worker: TaskId, is_late: bool) -> bool {
        let is_due = self.held.at.is_some();
        let standing = self.member(worker).map(|member| member.standing);
        is_due
            && match standing {
                Some(Standing::Joined) => true,
                Some(Standing::Awaited) => !is_late,
                Some(Standing::Left | Standing::Lost | Standing::Dropped) | None => false,
            }
    }
}
