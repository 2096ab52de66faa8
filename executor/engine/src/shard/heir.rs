//! A shard that is lost, and goes on from its copy in the process of the one that kept it.
//!
//! Its exchange stands beside that shard's own under the lost one's name, in the view that the chief works by: nothing moves and no step is
//! done again. Workers push once more what they have no answer to; what the copy has already is answered and not applied again.

use super::copy::Copy;
use super::exchange::Exchange;
use super::state::{Member, Phase, Standing, State};
use super::words::{Refusal, Seat};
use crate::clock;
use crate::wire::view::View;
use muster_model::id::TaskId;
use std::sync::{Arc, MutexGuard, RwLock};
use std::time::Duration;

/// How long the others wait for the chief's word; it may be evaluating the model.
const ADOPTED_WITHIN: Duration = Duration::from_secs(60);

impl Exchange {
    /// Waits until the chief has said that this is the lost shard from now on, where it is to be one.
    ///
    /// # Errors
    /// [`Refusal::NotAdopted`]: the chief may not have lost it at all.
    pub(super) fn adopted(&self) -> Result<MutexGuard<'_, State>, Refusal> {
        let began = clock::now();
        let mut state = self.lock();
        while self.is_heir() && state.phase == Phase::Empty && state.chief_lost.is_none() {
            if began.elapsed() >= ADOPTED_WITHIN {
                return Err(Refusal::NotAdopted);
            }
            state = self.wait_a_while(state);
        }
        Ok(state)
    }

    /// Whether it holds nothing yet.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().phase == Phase::Empty
    }

    /// Chief: this is the lost shard from now on. The step that comes next, which is `least` or later.
    ///
    /// # Errors
    /// [`Refusal::NotChief`]; [`Refusal::AlreadyInitialised`]; [`Refusal::Change`] when the copy is not of this view's layout, or
    /// lacks steps that were answered.
    pub(super) fn adopt(
        &self,
        seat: Seat,
        view: View,
        least: u64,
        copy: Copy,
    ) -> Result<u64, Refusal> {
        let mut state = self.lock();
        if !state.is_chief(seat.task) {
            return Err(Refusal::NotChief);
        }
        if state.phase != Phase::Empty {
            return Err(Refusal::AlreadyInitialised);
        }
        if view.layout != copy.layout || view.pieces(self.me) != copy.pieces {
            return Err(Refusal::Change("the copy is of another layout"));
        }
        let clock = |task: TaskId| match self.is_bsp() {
            true => copy.version,
            false => copy.clocks.get(&task).copied().unwrap_or(copy.version),
        };
        if clock(seat.task) < least {
            return Err(Refusal::Change("the copy lacks steps that were answered"));
        }
        // Under SSP and ASP all begin a view with the chief's next step, and nothing has come of it here yet.
        let begins = !self.is_bsp() && copy.view < view.number;
        let clock = |task: TaskId| match begins {
            true => least,
            false => clock(task),
        };
        let next = clock(seat.task);
        let member = |&task: &TaskId| Member {
            task,
            standing: match state.connected.contains_key(&task) {
                true => Standing::Joined,
                false => Standing::Awaited,
            },
            clock: clock(task),
            push: None,
            covered: None,
            spare: Vec::new(),
            entered: view.number,
            answered: 0,
            read_at: copy.updates,
            parts: Vec::new(),
            outbox: None,
        };
        state.members = view.workers.iter().map(member).collect();
        for task in &view.workers {
            state.waiting.remove(task);
        }
        state.version = copy.version;
        state.updates = copy.updates;
        state.hold = copy.hold;
        state.tally.layout = view.layout;
        state.view = Some(Arc::new(view));
        state.tensors = Arc::new(RwLock::new(copy.tensors));
        state.phase = Phase::Ready;
        self.follow(&mut state);
        self.notify();
        Ok(next)
    }
}
