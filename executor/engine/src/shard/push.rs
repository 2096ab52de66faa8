//! A worker's gradients come in: whether they are of this view and this step, and where they go.

use super::exchange::{Exchange, moved};
use super::state::{Phase, State};
use super::words::{Answer, Push, Refusal, Seat};
use crate::assign::load;
use crate::squeeze::Squeeze;
use muster_model::spec::Consistency;
use std::sync::{Arc, MutexGuard};

/// Numbers of a push, and how it is encoded, if it is.
pub type Expected = (usize, Option<Arc<Squeeze>>);

impl Exchange {
    /// Waits until a view of at least `number` holds for a worker's push of `clock`; the parameters that the shard has in it, and how pushes are
    /// encoded. `None` where a newer one holds and the worker may push all the same: steps do not wait for everyone, others have brought its
    /// gradients, or what it was told went down with the shard that this one goes on as.
    ///
    /// # Errors
    /// [`Refusal::StaleView`] when a newer one holds already: whoever does not know it is not of it; [`Refusal::NotAdopted`].
    pub fn await_view(
        &self,
        seat: Seat,
        number: u64,
        clock: u64,
    ) -> Result<Option<Expected>, Refusal> {
        let mut state = self.adopted()?;
        loop {
            if state.number() == number || state.finished || state.chief_lost.is_some() {
                let view = state.view.as_ref().ok_or(Refusal::NotInitialised)?;
                return Ok(Some((load(view.pieces(self.me)), state.squeeze.clone())));
            }
            let may_push = self.may_have_missed() || state.is_covered(seat.task, clock);
            if state.number() > number && number > 0 && may_push {
                return Ok(None);
            }
            if state.number() > number || number == 0 {
                let present = state.number();
                return Err(Refusal::StaleView {
                    known: number,
                    present,
                });
            }
            state = self.wait(state);
        }
    }

    /// Takes the gradients of `clock` from a worker that knows view `number`, and waits until it may go on.
    ///
    /// # Errors
    /// [`Refusal::StalePush`] for a step done already, done twice or not yet due; [`Refusal::StaleView`];
    /// [`Refusal::NotInitialised`].
    pub fn push(&self, seat: Seat, number: u64, clock: u64, push: Push) -> Result<Answer, Refusal> {
        let mut state = self.lock();
        loop {
            if state.finished {
                return Ok(Answer::Finished);
            }
            if let Some(lost) = state.chief_lost {
                return Ok(self.interrupted(&state, lost, push.gradients));
            }
            if state.is_covered(seat.task, clock) {
                return Ok(self.answer_bsp(state, seat, None, clock));
            }
            match state.phase {
                Phase::Empty => return Err(Refusal::NotInitialised),
                Phase::Retired => return Err(Refusal::Change("this shard is not in it")),
                Phase::Moving { .. } => {
                    state = self.wait(state);
                    continue;
                }
                Phase::Ready => {}
            }
            let present = state.number();
            if number < present && self.may_have_missed() {
                // The next view has come while the gradients did.
                return Ok(self.too_late(state, seat, clock, push.gradients));
            }
            if number != present {
                return Err(Refusal::StaleView {
                    known: number,
                    present,
                });
            }
            // Another shard, where the steps before are complete, has told this worker so: they soon are here.
            if self.backup() == 0 || clock <= state.version {
                break;
            }
            state = self.wait(state);
        }
        if self.backup() > 0 && clock < state.version && state.member(seat.task).is_some() {
            state.stats.dropped += 1;
            return Ok(self.parameters(&mut state, seat, push.gradients, None, None));
        }
        if state.parted.is_some() {
            return Err(Refusal::Mixed(clock));
        }
        // Whoever pushes has had the answer of the step before.
        state.forget_owed(|former, task| former.clock <= clock && task == seat.task);
        let is_summed = self.backup() > 0 && state.sum.is_some();
        if is_summed && clock == state.version && state.member(seat.task).is_some() {
            // Too late by no more than the chief's word takes.
            state.stats.dropped += 1;
            return Ok(self.answer_bsp(state, seat, Some(number), clock));
        }
        let member = state
            .member(seat.task)
            .ok_or(Refusal::Stranger(seat.task))?;
        if self.is_heir() && member.clock == clock + 1 {
            // The shard that was lost had applied it, and its copy has it.
            return Ok(match self.is_bsp() {
                true => self.answer_bsp(state, seat, Some(number), clock),
                false => self.answer_stale(state, seat, push.gradients),
            });
        }
        let skips = self.backup() > 0 && clock > member.clock;
        if clock != member.clock && !skips {
            return Err(Refusal::StalePush {
                task: seat.task,
                pushed: clock,
                expected: member.clock,
            });
        }
        if let Some(together) = &push.together
            && !state.cover(&together.others, clock)
        {
            let buffer = push.gradients;
            return Ok(Answer::Absent { buffer });
        }
        let member = state.member(seat.task).expect("it has just been one");
        member.clock = clock + 1;
        match self.consistency {
            Consistency::Bsp { .. } => {
                member.push = Some(push);
                self.follow(&mut state);
                self.changed.notify_all();
                Ok(self.answer_bsp(state, seat, Some(number), clock))
            }
            Consistency::Ssp { .. } | Consistency::Asp { .. } => {
                Ok(self.push_stale(state, seat, push))
            }
        }
    }

    /// What a worker is told that was asked, after its push, what it holds back.
    #[must_use]
    pub(super) fn go_on(&self, seat: Seat, buffer: Vec<f32>) -> Answer {
        self.answer_stale(self.lock(), seat, buffer)
    }

    /// What a worker is told whose gradients of `clock` were computed under a view that is over.
    #[must_use]
    pub fn missed(&self, seat: Seat, clock: u64) -> Answer {
        self.too_late(self.lock(), seat, clock, Vec::new())
    }

    /// Whether a worker may push under a view that is over and be right to: steps do not wait for everyone, or what it was told of the
    /// next view went down with the shard that this one goes on as.
    fn may_have_missed(&self) -> bool {
        self.backup() > 0 || self.is_heir()
    }

    /// An heir has had such gradients where every step waits for all, or the view would not be over; they have no answer yet. Nor has who
    /// brings what others have brought as well.
    fn too_late(
        &self,
        mut state: MutexGuard<'_, State>,
        seat: Seat,
        clock: u64,
        buffer: Vec<f32>,
    ) -> Answer {
        let has_them = self.is_bsp() && self.backup() == 0 && state.version > clock;
        let is_covered = state.is_covered(seat.task, clock);
        match (self.is_heir() && has_them) || is_covered {
            true => self.answer_bsp(state, seat, None, clock),
            false => moved(&state, buffer),
        }
    }

    /// The answer that the chief's push of `clock` still waits for, once it has decided on who went away.
    #[must_use]
    pub fn resume(&self, seat: Seat, clock: u64) -> Answer {
        let mut state = self.lock();
        if !self.is_bsp() {
            return self.answer_stale(state, seat, Vec::new());
        }
        if std::mem::take(&mut state.awaits_decision) {
            self.follow(&mut state);
            self.notify();
        }
        self.answer_bsp(state, seat, None, clock)
    }
}
