//! Incoming gradients of a worker: the check of view and step, and their processing.

use super::super::messages::{ConnectionId, Push, RequestRefusal, ShardAnswer};
use super::super::rules::{Admission, WaitingWorker, moved};
use super::super::state::{OpenStep, ShardState};
use super::ShardExchange;
use muster_comm::assign::load;
use muster_comm::shard_codec::ShardCodec;
use std::sync::{Arc, MutexGuard};

/// Number of values of a push, and its codec, if it is encoded.
pub type ExpectedPush = (usize, Option<Arc<ShardCodec>>);

impl ShardExchange {
    /// Waits until view `number` holds, for a worker's push of `clock`. Returns the number of
    /// parameters that the shard has in it, and the codec of pushes. `None` if a newer view holds
    /// and the worker may push all the same. This is the case with backup workers, and if another
    /// worker has pushed its gradients in a sum. It is also the case at a promoted replica, if the
    /// answer with the view was lost with the shard.
    ///
    /// # Errors
    /// [`RequestRefusal::StaleView`] when a newer view holds: a worker that does not know it is not
    /// in it; [`RequestRefusal::NotAdopted`].
    pub fn await_view(
        &self,
        connection_id: ConnectionId,
        number: u64,
        clock: u64,
    ) -> Result<Option<ExpectedPush>, RequestRefusal> {
        let mut state = self.adopted()?;
        loop {
            if state.number() == number || state.ending.is_over() {
                let view = state.view.as_ref().ok_or(RequestRefusal::NotInitialised)?;
                return Ok(Some((
                    load(view.pieces(self.rules.me)),
                    state.encoding.shard_codec.clone(),
                )));
            }
            let may_push =
                self.rules.may_have_missed() || state.is_covered(connection_id.task, clock);
            if state.number() > number && number > 0 && may_push {
                return Ok(None);
            }
            if state.number() > number || number == 0 {
                return Err(RequestRefusal::StaleView {
                    known: number,
                    present: state.number(),
                });
            }
            state = self.wait(state);
        }
    }

    /// Receives the gradients of `clock` from a worker that knows view `number`, and waits until it
    /// may continue.
    ///
    /// # Errors
    /// [`RequestRefusal::StalePush`] for a step that is complete, pushed twice or not due yet;
    /// [`RequestRefusal::StaleView`]; [`RequestRefusal::NotInitialised`].
    pub fn push(
        &self,
        connection_id: ConnectionId,
        number: u64,
        clock: u64,
        mut push: Push,
    ) -> Result<ShardAnswer, RequestRefusal> {
        let task = connection_id.task;
        let mut state = self.lock();
        let admission = loop {
            if let Some(answer) = self.rules.after_end(&state, &mut push.gradients) {
                return Ok(answer);
            }
            if state.is_covered(task, clock) {
                return Ok(self.answer(state, WaitingWorker::new(task, clock)));
            }
            if !state.phase.takes_pushes()? {
                state = self.wait(state);
                continue;
            }
            if number < state.number() && self.rules.may_have_missed() {
                // The next view began during the transfer of the gradients.
                return Ok(self.too_late(state, connection_id, clock, push.gradients));
            }
            state.check_view(number)?;
            match self.rules.model.admit(&state, task, clock) {
                Admission::Early => state = self.wait(state),
                admission => break admission,
            }
        };
        if admission == Admission::Late {
            state.report.stats.dropped += 1;
            let buffer = push.gradients;
            return Ok(self.rules.parameters(&mut state, task, buffer, None, None));
        }
        if let OpenStep::InPartitions(_) = state.step {
            return Err(RequestRefusal::Mixed(clock));
        }
        state.owed.forget_until(task, clock);
        if admission == Admission::Excluded {
            state.report.stats.dropped += 1;
            return Ok(self.answer(state, WaitingWorker::new(task, clock).with_view(number)));
        }
        let member = state.member(task).ok_or(RequestRefusal::Stranger(task))?;
        if self.rules.is_promoted() && member.clock == clock + 1 {
            // The lost shard had applied this push, and its replica contains it.
            let waiting = WaitingWorker::new(task, clock).with_view(number);
            return Ok(self.answer(state, waiting.with_buffer(push.gradients)));
        }
        let skips = self.rules.model.drops_pushes() && clock > member.clock;
        if clock != member.clock && !skips {
            return Err(RequestRefusal::StalePush {
                task,
                pushed: clock,
                expected: member.clock,
            });
        }
        if let Some(together) = &push.together
            && !state.cover(&together.others, clock)
        {
            let buffer = push.gradients;
            return Ok(ShardAnswer::Absent { buffer });
        }
        let member = state.member(task).expect("it has just been one");
        member.clock = clock + 1;
        let buffer = self.rules.model.take(&self.rules, &mut state, task, push);
        self.notify();
        let waiting = WaitingWorker::new(task, clock).with_view(number);
        Ok(self.answer(state, waiting.with_buffer(buffer)))
    }

    /// Returns the answer to the push of `clock` by a worker that was asked for its residual.
    #[must_use]
    pub(in crate::shard) fn go_on(
        &self,
        connection_id: ConnectionId,
        clock: u64,
        buffer: Vec<f32>,
    ) -> ShardAnswer {
        let waiting = WaitingWorker::new(connection_id.task, clock);
        self.answer(self.lock(), waiting.with_buffer(buffer))
    }

    /// Returns the answer for a worker whose gradients of `clock` were computed under an ended
    /// view.
    #[must_use]
    pub fn missed(&self, connection_id: ConnectionId, clock: u64) -> ShardAnswer {
        self.too_late(self.lock(), connection_id, clock, Vec::new())
    }

    /// Answers gradients of an ended view. Under BSP without backup workers a promoted replica
    /// contains them, because the view could not have ended otherwise; only their answer is
    /// missing. The same holds for gradients that another worker has pushed as well.
    fn too_late(
        &self,
        mut state: MutexGuard<'_, ShardState>,
        connection_id: ConnectionId,
        clock: u64,
        buffer: Vec<f32>,
    ) -> ShardAnswer {
        let task = connection_id.task;
        let has_them = self.rules.model.counts_every_worker() && state.version > clock;
        let is_covered = state.is_covered(task, clock);
        if (self.rules.is_promoted() && has_them) || is_covered {
            self.answer(state, WaitingWorker::new(task, clock))
        } else {
            moved(&state, buffer)
        }
    }

    /// Returns the pending answer to the coordinator's push of `clock`, after its decision on
    /// departed workers.
    #[must_use]
    pub fn resume(&self, connection_id: ConnectionId, clock: u64) -> ShardAnswer {
        let mut state = self.lock();
        if std::mem::take(&mut state.awaits_decision) {
            self.rules.follow(&mut state);
            self.notify();
        }
        self.answer(state, WaitingWorker::new(connection_id.task, clock))
    }

    /// Returns memory for codes that are kept.
    pub(in crate::shard) fn spare_codes(&self) -> Vec<u8> {
        self.lock().encoding.take_spare_codes()
    }

    /// Coordinator: applies step `clock` with the clip factor `factor`.
    ///
    /// # Errors
    /// [`RequestRefusal::NotChief`]; [`RequestRefusal::NothingToClip`] when no such step waits for
    /// it.
    pub(in crate::shard) fn clip(
        &self,
        connection_id: ConnectionId,
        clock: u64,
        factor: f32,
    ) -> Result<(), RequestRefusal> {
        let mut state = self.lock_as_chief(connection_id)?;
        let sum = if state.version == clock {
            state.step.take_sum()
        } else {
            None
        };
        let sum = sum.ok_or(RequestRefusal::NothingToClip(clock))?;
        self.rules.apply_clipped(&mut state, sum, factor);
        self.notify();
        Ok(())
    }
}
