//! Where workers are not in step (SSP, ASP): a moment of which a shard knows its own numbers and what each worker held back of
//! it then, while all go on.
//!
//! What a worker holds back of a shard's part changes with its pushes to that shard alone. So each push says what is held back after it from
//! the chief's notice on, and both begin to count at once; a worker whose last push said nothing is asked while it waits for its answer. At any
//! moment at which everybody has been heard, the shard's numbers and what was said belong together, and the chief's snapshot is taken at the
//! first one. It is the marker of Chandy and Lamport's snapshot (ACM TOCS 1985), with what a channel has in it asked of its sender.
//! The price: each push of a worker between the notice and the snapshot is dense besides. While the chief waits for the slowest, it makes no
//! steps, so the others go as far ahead as their staleness lets them; the chief limits that wait. Each shard has a moment of its own, as its
//! snapshot has. Not with backup workers: there no step is complete without the chief, and a wait for the slowest at each checkpoint is what
//! they are there to avoid.

use super::super::exchange::Exchange;
use super::super::state::{Standing, State};
use super::super::words::Seat;
use crate::clock;
use crate::log;
use muster_model::id::TaskId;
use std::sync::MutexGuard;
use std::time::Duration;

/// What a worker holds back after a push that does not count yet.
#[derive(Debug)]
pub(in crate::shard) struct Coming {
    /// The step after that of the push.
    clock: u64,
    values: Vec<f32>,
}

impl Exchange {
    /// Whether pushes are encoded and not in step, so that everybody says on its own what it holds back.
    pub(in crate::shard) fn is_heard_singly(&self) -> bool {
        self.recipe.codecs.is_some() && !self.is_bsp()
    }

    /// Whether a worker's next push is to say what is held back after it.
    pub(in crate::shard) fn is_to_say(&self, state: &State, worker: TaskId) -> bool {
        self.is_heard_singly() && state.held.at.is_some() && !state.is_chief(worker)
    }

    /// Whether a worker that waits for an answer is to be asked what it holds back; it then counts as asked.
    pub(in crate::shard) fn asks(&self, state: &mut State, worker: TaskId) -> bool {
        self.is_to_say(state, worker)
            && !state.held.by_worker.contains_key(&worker)
            && state.held.asked.insert(worker)
    }

    /// What the worker of this seat says that it holds back after its push of the step before `clock`.
    pub(in crate::shard) fn hear_held(&self, seat: Seat, clock: u64, values: Vec<f32>) {
        let mut state = self.lock();
        if !self.is_to_say(&state, seat.task) {
            return;
        }
        let Some(member) = state.member(seat.task) else {
            // The chief took it for lost: what it says may be of other pieces.
            return;
        };
        if member.clock >= clock {
            state.held.by_worker.insert(seat.task, values);
        } else {
            let coming = Coming { clock, values };
            state.held.coming.insert(seat.task, coming);
        }
        self.notify();
    }

    /// A push does not count and never will, as it is of a view that is over.
    pub(in crate::shard) fn forget_coming(&self, seat: Seat) {
        self.lock().held.coming.remove(&seat.task);
    }

    /// Chief: waits `within` that time for a moment at which everybody who pushes has been heard, and holds what was heard fast; after it
    /// whoever has not been heard is left out.
    pub(in crate::shard) fn hear_all<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        within: Duration,
    ) -> MutexGuard<'a, State> {
        let began = clock::now();
        let next = state.next_step(self.consistency);
        if !self.is_heard_singly() || state.held.at.is_none_or(|at| at > next) {
            return state;
        }
        loop {
            let unheard = state.unheard();
            let is_late = began.elapsed() >= within;
            if unheard.is_empty() || state.finished || is_late {
                if !unheard.is_empty() {
                    let names: Vec<String> = unheard.iter().map(ToString::to_string).collect();
                    log::line(format_args!(
                        "the checkpoint goes on without what these workers hold back, who have not said it in {within:?}: {}",
                        names.join(", ")
                    ));
                }
                state.held.at = None;
                state.held.coming.clear();
                return state;
            }
            state = self.wait_a_while(state);
        }
    }
}

impl State {
    /// The worker's push of the step before `clock` counts from now on: what it has said holds.
    pub(in crate::shard) fn now_holds(&mut self, worker: TaskId, clock: u64) {
        let held = &mut self.held;
        if held.at.is_none() {
            return;
        }
        match held.coming.remove(&worker) {
            Some(coming) if coming.clock == clock => {
                held.by_worker.insert(worker, coming.values);
            }
            // What was said before is of an earlier push.
            _ => {
                held.by_worker.remove(&worker);
            }
        }
    }

    /// Other pieces are here: what was said is of those before.
    pub(in crate::shard) fn forget_said(&mut self) {
        self.held.forget_said();
    }

    /// Whose part is not known, and who may yet say it.
    fn unheard(&self) -> Vec<TaskId> {
        let (joined, chief) = (Standing::Joined, self.chief);
        let mut all: Vec<TaskId> = self
            .members
            .iter()
            .filter(|member| member.standing == joined && Some(member.task) != chief)
            .map(|member| member.task)
            .collect();
        all.retain(|task| !self.held.by_worker.contains_key(task));
        all
    }
}
