//! Incoming gradients of a worker: the check of view and step, and their processing.

use super::exchange::{Exchange, moved};
use super::state::{Phase, State};
use super::words::{Answer, Push, Refusal, Seat};
use muster_comm::assign::load;
use muster_comm::squeeze::Squeeze;
use muster_model::spec::Consistency;
use std::sync::{Arc, MutexGuard};

/// Number of values of a push, and its codec, if it is encoded.
pub type Expected = (usize, Option<Arc<Squeeze>>);

impl Exchange {
    /// Waits until view `number` holds, for a worker's push of `clock`. Returns the number of
    /// parameters that the shard has in it, and the codec of pushes. `None` if a newer view holds
    /// and the worker may push all the same. This is the case with backup workers, and if another
    /// worker has pushed its gradients in a sum. It is also the case at a promoted replica, if the
    /// answer with the view was lost with the shard.
    ///
    /// # Errors
    /// [`Refusal::StaleView`] when a newer view holds: a worker that does not know it is not in it;
    /// [`Refusal::NotAdopted`].
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

    /// Receives the gradients of `clock` from a worker that knows view `number`, and waits until it
    /// may continue.
    ///
    /// # Errors
    /// [`Refusal::StalePush`] for a step that is complete, pushed twice or not due yet;
    /// [`Refusal::StaleView`]; [`Refusal::NotInitialised`].
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
                // The next view began during the transfer of the gradients.
                return Ok(self.too_late(state, seat, clock, push.gradients));
            }
            if number != present {
                return Err(Refusal::StaleView {
                    known: number,
                    present,
                });
            }
            // With backup workers, another shard that has completed the previous steps may have
            // answered this worker. They will soon be complete here.
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
        // A worker that pushes has received the answer to its previous step.
        state.forget_owed(|former, task| former.clock <= clock && task == seat.task);
        let is_summed = self.backup() > 0 && state.sum.is_some();
        if is_summed && clock == state.version && state.member(seat.task).is_some() {
            // The step is summed already and waits only for the clip factor.
            state.stats.dropped += 1;
            return Ok(self.answer_bsp(state, seat, Some(number), clock));
        }
        let member = state
            .member(seat.task)
            .ok_or(Refusal::Stranger(seat.task))?;
        if self.is_heir() && member.clock == clock + 1 {
            // The lost shard had applied this push, and its replica contains it.
            return Ok(if self.is_bsp() {
                self.answer_bsp(state, seat, Some(number), clock)
            } else {
                self.answer_stale(state, seat, push.gradients)
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

    /// Returns the answer for a worker that was asked for its residual after its push.
    #[must_use]
    pub(super) fn go_on(&self, seat: Seat, buffer: Vec<f32>) -> Answer {
        self.answer_stale(self.lock(), seat, buffer)
    }

    /// Returns the answer for a worker whose gradients of `clock` were computed under an ended
    /// view.
    #[must_use]
    pub fn missed(&self, seat: Seat, clock: u64) -> Answer {
        self.too_late(self.lock(), seat, clock, Vec::new())
    }

    /// Whether a worker may correctly push under an ended view. This is the case with backup
    /// workers, and at a promoted replica, if the answer with the next view was lost with the
    /// shard.
    fn may_have_missed(&self) -> bool {
        self.backup() > 0 || self.is_heir()
    }

    /// Answers gradients of an ended view. Under BSP without backup workers a promoted replica
    /// contains them, because the view could not have ended otherwise; only their answer is
    /// missing. The same holds for gradients that another worker has pushed as well.
    fn too_late(
        &self,
        mut state: MutexGuard<'_, State>,
        seat: Seat,
        clock: u64,
        buffer: Vec<f32>,
    ) -> Answer {
        let has_them = self.is_bsp() && self.backup() == 0 && state.version > clock;
        let is_covered = state.is_covered(seat.task, clock);
        if (self.is_heir() && has_them) || is_covered {
            self.answer_bsp(state, seat, None, clock)
        } else {
            moved(&state, buffer)
        }
    }

    /// Returns the pending answer to the coordinator's push of `clock`, after its decision on
    /// departed workers.
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
