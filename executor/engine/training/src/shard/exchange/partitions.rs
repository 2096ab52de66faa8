//! Pushes in partitions.

use super::super::messages::{ConnectionId, Push, RequestRefusal, ShardAnswer};
use super::super::outbox::PartitionOutbox;
use super::super::rules::WaitingWorker;
use super::super::state::ShardState;
use super::ShardExchange;
use muster_comm::wire::metadata::PushHead;
use std::sync::{Arc, MutexGuard};

/// A partition of a worker's gradients.
pub struct GradientPartition {
    pub view: u64,
    pub clock: u64,
    pub part: usize,
    pub numbers: Vec<f32>,
}

impl ShardExchange {
    /// Receives a partition of a worker's gradients. Does not wait; answers go to `outbox`.
    ///
    /// # Errors
    /// As [`Self::push`]; [`RequestRefusal::Part`] for one that has arrived already.
    pub(in crate::shard) fn push_part(
        &self,
        connection_id: ConnectionId,
        outbox: &Arc<PartitionOutbox>,
        piece: GradientPartition,
    ) -> Result<(), RequestRefusal> {
        let Some(mut state) = self.parted(connection_id, piece.view, piece.clock)? else {
            // The answer after all partitions states the reason.
            return Ok(());
        };
        let count = self.rules.begin_parted(&mut state);
        let member = state
            .member(connection_id.task)
            .expect("it has just been looked at");
        member.outbox = Some(Arc::clone(outbox));
        member.parts.resize(count, None);
        let is_new = member.push.is_none();
        match member.parts.get_mut(piece.part) {
            Some(slot) if slot.is_none() && is_new => *slot = Some(piece.numbers),
            _ => return Err(RequestRefusal::Part(piece.part)),
        }
        self.rules.apply_part(&mut state, piece.part);
        Ok(())
    }

    /// Handles the end of the worker's gradients of `clock`: waits until the worker may continue.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub(in crate::shard) fn push_rest(
        &self,
        connection_id: ConnectionId,
        outbox: &Arc<PartitionOutbox>,
        clock: u64,
        head: PushHead,
    ) -> Result<ShardAnswer, RequestRefusal> {
        let Some(mut state) = self.parted(connection_id, head.view, clock)? else {
            let state = self.lock();
            let end = self.rules.after_end(&state, &mut Vec::new());
            return Ok(end.unwrap_or(ShardAnswer::Finished));
        };
        self.rules.begin_parted(&mut state);
        state.owed.forget_until(connection_id.task, clock);
        let member = state
            .member(connection_id.task)
            .expect("it has just been looked at");
        member.outbox = Some(Arc::clone(outbox));
        member.clock = clock + 1;
        member.push = Some(Push {
            gradients: Vec::new(),
            codes: None,
            targets: head.targets,
            stats: head.stats,
            together: None,
        });
        self.rules.follow(&mut state);
        self.notify();
        let waiting = WaitingWorker::new(connection_id.task, clock);
        Ok(self.answer(state, waiting.with_view(head.view)))
    }

    /// Returns the state, if this worker may push `clock` in partitions under view `number`; `None`
    /// when training has ended or is interrupted.
    fn parted(
        &self,
        connection_id: ConnectionId,
        number: u64,
        clock: u64,
    ) -> Result<Option<MutexGuard<'_, ShardState>>, RequestRefusal> {
        let mut state = self.lock();
        loop {
            if state.ending.is_over() {
                return Ok(None);
            }
            if state.phase.takes_pushes()? {
                break;
            }
            state = self.wait(state);
        }
        state.check_view(number)?;
        let is_parted = state.step.partitions().is_some();
        if !is_parted && state.members.iter().any(|member| member.push.is_some()) {
            return Err(RequestRefusal::Mixed(clock));
        }
        let member = state
            .member(connection_id.task)
            .ok_or(RequestRefusal::Stranger(connection_id.task))?;
        if member.clock == clock {
            Ok(Some(state))
        } else {
            Err(RequestRefusal::StalePush {
                task: connection_id.task,
                pushed: clock,
                expected: member.clock,
            })
        }
    }
}
