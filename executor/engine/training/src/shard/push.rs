//! Incoming gradients of a worker: the check of view and step, and their processing.

use super::exchange::{ShardExchange, moved};
use super::messages::{ConnectionId, Push, RequestRefusal, ShardAnswer};
use super::state::{ShardState, TensorPhase};
use muster_comm::assign::load;
use muster_comm::shard_codec::ShardCodec;
use muster_model::spec::Consistency;
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
            if state.number() == number || state.finished || state.chief_lost.is_some() {
                let view = state.view.as_ref().ok_or(RequestRefusal::NotInitialised)?;
                return Ok(Some((
                    load(view.pieces(self.me)),
                    state.shard_codec.clone(),
                )));
            }
            let may_push = self.may_have_missed() || state.is_covered(connection_id.task, clock);
            if state.number() > number && number > 0 && may_push {
                return Ok(None);
            }
            if state.number() > number || number == 0 {
                let present = state.number();
                return Err(RequestRefusal::StaleView {
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
    /// [`RequestRefusal::StalePush`] for a step that is complete, pushed twice or not due yet;
    /// [`RequestRefusal::StaleView`]; [`RequestRefusal::NotInitialised`].
    pub fn push(
        &self,
        connection_id: ConnectionId,
        number: u64,
        clock: u64,
        push: Push,
    ) -> Result<ShardAnswer, RequestRefusal> {
        let mut state = self.lock();
        loop {
            if state.finished {
                return Ok(ShardAnswer::Finished);
            }
            if let Some(lost) = state.chief_lost {
                return Ok(self.interrupted(&state, lost, push.gradients));
            }
            if state.is_covered(connection_id.task, clock) {
                return Ok(self.answer_bsp(state, connection_id, None, clock));
            }
            match state.phase {
                TensorPhase::Empty => return Err(RequestRefusal::NotInitialised),
                TensorPhase::Retired => {
                    return Err(RequestRefusal::Change("this shard is not in it"));
                }
                TensorPhase::Moving { .. } => {
                    state = self.wait(state);
                    continue;
                }
                TensorPhase::Ready => {}
            }
            let present = state.number();
            if number < present && self.may_have_missed() {
                // The next view began during the transfer of the gradients.
                return Ok(self.too_late(state, connection_id, clock, push.gradients));
            }
            if number != present {
                return Err(RequestRefusal::StaleView {
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
        if self.backup() > 0 && clock < state.version && state.member(connection_id.task).is_some()
        {
            state.stats.dropped += 1;
            return Ok(self.parameters(&mut state, connection_id, push.gradients, None, None));
        }
        if state.parted.is_some() {
            return Err(RequestRefusal::Mixed(clock));
        }
        // A worker that pushes has received the answer to its previous step.
        state.forget_owed(|former, task| former.clock <= clock && task == connection_id.task);
        let is_summed = self.backup() > 0 && state.sum.is_some();
        if is_summed && clock == state.version && state.member(connection_id.task).is_some() {
            // The step is summed already and waits only for the clip factor.
            state.stats.dropped += 1;
            return Ok(self.answer_bsp(state, connection_id, Some(number), clock));
        }
        let member = state
            .member(connection_id.task)
            .ok_or(RequestRefusal::Stranger(connection_id.task))?;
        if self.is_promoted() && member.clock == clock + 1 {
            // The lost shard had applied this push, and its replica contains it.
            return Ok(if self.is_bsp() {
                self.answer_bsp(state, connection_id, Some(number), clock)
            } else {
                self.answer_stale(state, connection_id, push.gradients)
            });
        }
        let skips = self.backup() > 0 && clock > member.clock;
        if clock != member.clock && !skips {
            return Err(RequestRefusal::StalePush {
                task: connection_id.task,
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
        let member = state
            .member(connection_id.task)
            .expect("it has just been one");
        member.clock = clock + 1;
        match self.consistency {
            Consistency::Bsp { .. } => {
                member.push = Some(push);
                self.follow(&mut state);
                self.changed.notify_all();
                Ok(self.answer_bsp(state, connection_id, Some(number), clock))
            }
            Consistency::Ssp { .. } | Consistency::Asp { .. } => {
                Ok(self.push_stale(state, connection_id, push))
            }
        }
    }

    /// Returns the answer for a worker that was asked for its residual after its push.
    #[must_use]
    pub(super) fn go_on(&self, connection_id: ConnectionId, buffer: Vec<f32>) -> ShardAnswer {
        self.answer_stale(self.lock(), connection_id, buffer)
    }

    /// Returns the answer for a worker whose gradients of `clock` were computed under an ended
    /// view.
    #[must_use]
    pub fn missed(&self, connection_id: ConnectionId, clock: u64) -> ShardAnswer {
        self.too_late(self.lock(), connection_id, clock, Vec::new())
    }

    /// Whether a worker may correctly push under an ended view. This is the case with backup
    /// workers, and at a promoted replica, if the answer with the next view was lost with the
    /// shard.
    fn may_have_missed(&self) -> bool {
        self.backup() > 0 || self.is_promoted()
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
        let has_them = self.is_bsp() && self.backup() == 0 && state.version > clock;
        let is_covered = state.is_covered(connection_id.task, clock);
        if (self.is_promoted() && has_them) || is_covered {
            self.answer_bsp(state, connection_id, None, clock)
        } else {
            moved(&state, buffer)
        }
    }

    /// Returns the pending answer to the coordinator's push of `clock`, after its decision on
    /// departed workers.
    #[must_use]
    pub fn resume(&self, connection_id: ConnectionId, clock: u64) -> ShardAnswer {
        let mut state = self.lock();
        if !self.is_bsp() {
            return self.answer_stale(state, connection_id, Vec::new());
        }
        if std::mem::take(&mut state.awaits_decision) {
            self.follow(&mut state);
            self.notify();
        }
        self.answer_bsp(state, connection_id, None, clock)
    }
}
