//! View changes, and the pieces that move in them.
//!
//! The coordinator announces the next view and its first step to every shard of both views, before
//! any worker can be past that step. Under BSP it does so before its own push of the previous step.
//! So every shard completes that step for the workers of the old view and answers it with the new
//! view. Only then it enters the new view. A shard that has reported departed workers completes the
//! step only after the coordinator's decision. The missing gradients may still arrive late, or in
//! another worker's sum.
//!
//! Under SSP and ASP the shards answer every push with the new view from the announcement on. The
//! view holds once each worker of the old view has pulled under it, has left or is lost.
//!
//! Pieces then move from shard to shard while the workers already compute, with the parameters of
//! the last step of the old view. Their pushes are read, and applied after the last piece has
//! arrived.

use super::super::messages::{ConnectionId, RequestRefusal};
use super::super::state::{PendingChange, PieceMove, ShardPhase, WorkerStatus};
use super::ShardExchange;
use muster_comm::assign::{common, load, local};
use muster_comm::wire::view::{Handover, ReshardingReport, ViewChange};
use muster_model::id::TaskId;
use std::sync::Arc;

impl ShardExchange {
    /// Coordinator: announces that `change` follows at step `from`. Returns whether pieces will
    /// move to or from this shard.
    ///
    /// # Errors
    /// [`RequestRefusal::NotChief`]; [`RequestRefusal::Change`] when the change cannot follow.
    pub fn change(
        &self,
        connection_id: ConnectionId,
        from: u64,
        change: ViewChange,
    ) -> Result<bool, RequestRefusal> {
        let mut state = self.lock_as_chief(connection_id)?;
        self.rules.judge(&state, from, &change)?;
        for gone in &change.gone {
            let is_open = self.rules.model.is_open_before(&state, from);
            state.owed.forget(*gone);
            if let Some(member) = state.member(*gone).filter(|_| is_open) {
                member.standing = WorkerStatus::Dropped;
                // A push for several workers counts: their gradients cannot be separated from its
                // own.
                member.push.take_if(|push| push.together.is_none());
                member.parts.clear();
            }
        }
        // A worker that has not connected and is not in the next view is not waited for any more.
        for member in &mut state.members {
            if member.standing == WorkerStatus::Awaited && change.view.rank(member.task).is_none() {
                member.standing = WorkerStatus::Dropped;
            }
        }
        let moves = self.rules.moves(&state, &change.view);
        state.awaits_decision = false;
        let change = Arc::new(change);
        state.pending = Some(PendingChange { from, change });
        self.rules.follow(&mut state);
        self.notify();
        Ok(moves)
    }

    /// Waits until the move to `layout` begins; `None` if it never will.
    pub(in crate::shard) fn await_move(&self, layout: u64) -> Option<PieceMove> {
        let mut state = self.lock();
        loop {
            let found = state.phase.piece_move();
            if let Some(found) = found.filter(|found| found.view.layout == layout) {
                return Some(found.clone());
            }
            if state.ending.is_over() || state.ending.broken {
                return None;
            }
            state = self.wait(state);
        }
    }

    /// Records that the pieces which stay here have been copied.
    pub(in crate::shard) fn kept(&self, of: &PieceMove, before: u64) {
        let mut state = self.lock();
        state.tally.before = before;
        if let Some(incoming) = state.phase.incoming_mut() {
            incoming.copying = false;
        }
        drop(state);
        self.settle(of);
    }

    /// Records that all pieces for other shards have arrived there, or that a transfer failed.
    pub(in crate::shard) fn handed_over(&self, well: bool) {
        let mut state = self.lock();
        state.handed_over = true;
        state.ending.broken |= !well;
        state.phase.forget_outgoing();
        self.notify();
    }

    /// Receives pieces of another shard: waits until there is memory for them and lets `fill` write
    /// them.
    ///
    /// # Errors
    /// [`RequestRefusal::NotExpected`], or the error of `fill`.
    pub(in crate::shard) fn receive<E: From<RequestRefusal>>(
        &self,
        sender: TaskId,
        handover: Handover,
        fill: impl FnOnce(&mut [&mut [f32]]) -> Result<(), E>,
    ) -> Result<(), E> {
        let of = self
            .await_move(handover.layout)
            .ok_or(RequestRefusal::NotExpected(sender))?;
        if !self.lock().phase.lacks_pieces_of(sender) {
            return Err(RequestRefusal::NotExpected(sender).into());
        }
        let pieces = of.view.pieces(self.rules.me);
        let parts = common(of.view.pieces_before(sender), pieces);
        let planes = {
            let mut tensors = of.new.write().expect("no update has panicked");
            tensors.fill_selected(&local(pieces, &parts), fill)?;
            tensors.numbers_per_parameter()
        };
        let mut state = self.lock();
        state.updates = state.updates.max(handover.updates);
        state.tally.received += (load(&parts) * planes) as u64;
        if let Some(incoming) = state.phase.incoming_mut() {
            incoming.missing.remove(&sender);
        }
        drop(state);
        self.settle(&of);
        Ok(())
    }

    /// Ends the move after the last piece has arrived.
    fn settle(&self, of: &PieceMove) {
        if !self.lock().phase.has_all_pieces() {
            self.notify();
            return;
        }
        // The tensors do not change before the phase does.
        let after = of.checksum(self.rules.me);
        let mut state = self.lock();
        if state.phase.is_moving() {
            state.tally.after = after;
            state.tally.took_us = of.began.elapsed().as_micros() as u64;
            state.phase = ShardPhase::Ready;
            self.rules.follow(&mut state);
        }
        self.notify();
    }

    /// Coordinator: waits for the end of the move to the present layout and returns its checksums.
    ///
    /// # Errors
    /// [`RequestRefusal::NotChief`].
    pub(in crate::shard) fn tally(
        &self,
        connection_id: ConnectionId,
    ) -> Result<ReshardingReport, RequestRefusal> {
        let mut state = self.lock_as_chief(connection_id)?;
        if let Some(next) = state.next_view().map(|view| view.number)
            && let Some(chief) = state.member(connection_id.task)
        {
            // A shard outside that view has no other message that the coordinator has entered it.
            chief.entered = next;
            self.rules.follow(&mut state);
            self.notify();
        }
        while (state.phase.is_moving() || !state.handed_over || state.pending.is_some())
            && !state.ending.broken
            && !state.ending.finished
        {
            state = self.wait(state);
        }
        Ok(state.tally)
    }
}
