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

use super::exchange::ShardExchange;
use super::messages::{ConnectionId, RequestRefusal};
use super::state::{PieceMove, ShardState, TensorPhase, WorkerStatus};
use super::tensors::Tensors;
use muster_comm::assign::{ParameterPiece, common, load, local};
use muster_comm::wire::view::{Handover, ReshardingReport, TaskSetView, ViewChange};
use muster_compute::clock;
use muster_model::id::TaskId;
use std::collections::BTreeSet;
use std::sync::{Arc, RwLock};

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
        let mut state = self.lock();
        if !state.is_chief(connection_id.task) {
            return Err(RequestRefusal::NotChief);
        }
        self.judge(&state, from, &change)?;
        for gone in &change.gone {
            let is_open = state.version < from || !self.is_bsp();
            state.forget_owed(|_, task| task == *gone);
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
        let moves = self.moves(&state, &change.view);
        state.awaits_decision = false;
        state.pending = Some((from, Arc::new(change)));
        self.follow(&mut state);
        self.notify();
        Ok(moves)
    }

    fn judge(
        &self,
        state: &ShardState,
        from: u64,
        change: &ViewChange,
    ) -> Result<(), RequestRefusal> {
        let view = &change.view;
        let all = view.shards.iter().chain(&view.before);
        if !all
            .into_iter()
            .all(|holder| self.recipe.allows(&holder.pieces))
        {
            return Err(RequestRefusal::Change(
                "its pieces are not those of the network",
            ));
        }
        let known = state
            .pending
            .as_ref()
            .map_or(state.number(), |(_, change)| change.view.number);
        if view.number <= known {
            return Err(RequestRefusal::Change("it is not newer"));
        }
        if view.workers.first() != state.chief.as_ref() {
            return Err(RequestRefusal::Change("its first worker is not the chief"));
        }
        let follows = match (&state.phase, self.is_bsp()) {
            (TensorPhase::Empty, _) => true,
            (_, true) => from == state.version || from == state.version + 1,
            (_, false) => from == state.next_step(self.consistency),
        };
        if follows {
            Ok(())
        } else {
            Err(RequestRefusal::Change("it begins at another step"))
        }
    }

    pub(super) fn is_bsp(&self) -> bool {
        self.consistency.is_bulk_synchronous()
    }

    /// Returns the number of workers whose gradients a step does not wait for.
    pub(super) fn backup(&self) -> u32 {
        self.consistency.backup()
    }

    /// Whether answers contain only differences: every answered worker then has the parameters of
    /// the previous step.
    pub(super) fn answers_encoded(&self) -> bool {
        self.is_bsp() && self.backup() == 0
    }

    /// Whether the shard stores the parameters as the workers know them.
    pub(super) fn keeps_known(&self) -> bool {
        self.answers_encoded() && self.recipe.codecs.is_some()
    }

    /// Whether pieces move to or from this shard when `view` follows.
    fn moves(&self, state: &ShardState, view: &TaskSetView) -> bool {
        let layout = state.view.as_ref().map_or(0, |view| view.layout);
        view.layout != layout
            && !view.before.is_empty()
            && view.pieces(self.me) != view.pieces_before(self.me)
    }

    /// Completes the step if possible, then the pending change.
    pub(super) fn follow(&self, state: &mut ShardState) {
        if self.is_bsp() {
            self.apply_if_complete(state);
        }
        let Some((from, change)) = state.pending.clone() else {
            return;
        };
        let due = match state.phase {
            TensorPhase::Empty => true,
            _ if self.is_bsp() => state.version == from,
            _ => state.all_entered(change.view.number),
        };
        if due {
            state.pending = None;
            self.install(state, from, &change);
        }
    }

    fn install(&self, state: &mut ShardState, from: u64, change: &ViewChange) {
        let view = &change.view;
        let moves = self.moves(state, view);
        let new_layout = state.view.as_ref().map_or(0, |view| view.layout) != view.layout;
        let was_empty = state.phase == TensorPhase::Empty;
        // At a promoted replica it is not known which workers will connect, and with which pushes.
        state.install(
            from,
            change,
            self.is_bsp() && !was_empty,
            self.is_promoted(),
        );
        if new_layout && self.is_heard_singly() {
            state.forget_said();
        }
        let pieces = view.pieces(self.me);
        if new_layout {
            state.tally = ReshardingReport {
                layout: view.layout,
                before: 0,
                after: 0,
                received: 0,
                took_us: 0,
            };
        }
        if new_layout {
            state.shard_codec = self.recipe.shard_codec(pieces).map(Arc::new);
            // Their capacity is that of codes for the previous pieces.
            state.spare_codes = Vec::new();
        }
        if new_layout && view.before.is_empty() {
            state.tensors = Arc::new(RwLock::new(
                self.recipe.tensors(pieces, self.answers_encoded()),
            ));
        } else if moves {
            self.begin_move(state, pieces);
        } else if !view.has_shard(self.me) {
            state.phase = TensorPhase::Retired;
        } else if was_empty && !view.before.is_empty() {
            // A new shard for which no pieces are left.
            state.phase = TensorPhase::Ready;
        }
    }

    fn begin_move(&self, state: &mut ShardState, pieces: &[ParameterPiece]) {
        let view = Arc::clone(state.view.as_ref().expect("one was installed"));
        let senders = view
            .before
            .iter()
            .filter(|holder| holder.task_id != self.me);
        let missing: BTreeSet<TaskId> = senders
            .filter(|holder| !common(&holder.pieces, pieces).is_empty())
            .map(|holder| holder.task_id)
            .collect();
        let new = Arc::new(RwLock::new(
            self.recipe.tensors(pieces, self.answers_encoded()),
        ));
        let old = std::mem::replace(&mut state.tensors, Arc::clone(&new));
        state.phase = if view.has_shard(self.me) {
            TensorPhase::Moving {
                missing,
                copying: true,
            }
        } else {
            TensorPhase::Retired
        };
        state.handed_over = false;
        state.moving = Some(PieceMove {
            view,
            old,
            new,
            updates: state.updates,
            began: clock::now(),
        });
    }

    /// Waits until the move to `layout` begins; `None` if it never will.
    pub(super) fn await_move(&self, layout: u64) -> Option<PieceMove> {
        let mut state = self.lock();
        loop {
            if let Some(found) = &state.moving
                && found.view.layout == layout
            {
                return Some(found.clone());
            }
            if state.finished || state.broken || state.chief_lost.is_some() {
                return None;
            }
            state = self.wait(state);
        }
    }

    /// Records that the pieces which stay here have been copied.
    pub(super) fn kept(&self, of: &PieceMove, before: u64) {
        let mut state = self.lock();
        state.tally.before = before;
        if let TensorPhase::Moving { copying, .. } = &mut state.phase {
            *copying = false;
        }
        drop(state);
        self.settle(of);
    }

    /// Records that all pieces for other shards have arrived there, or that a transfer failed.
    pub(super) fn handed_over(&self, well: bool) {
        let mut state = self.lock();
        state.handed_over = true;
        state.broken |= !well;
        if state.phase == TensorPhase::Retired {
            // No worker needs the old tensors any more.
            state.moving = None;
        }
        self.notify();
    }

    /// Receives pieces of another shard: waits until there is memory for them and lets `fill` write
    /// them.
    ///
    /// # Errors
    /// [`RequestRefusal::NotExpected`], or the error of `fill`.
    pub(super) fn receive<E: From<RequestRefusal>>(
        &self,
        sender: TaskId,
        handover: Handover,
        fill: impl FnOnce(&mut [&mut [f32]]) -> Result<(), E>,
    ) -> Result<(), E> {
        let of = self
            .await_move(handover.layout)
            .ok_or(RequestRefusal::NotExpected(sender))?;
        let is_missing = |state: &ShardState| matches!(&state.phase, TensorPhase::Moving { missing, .. } if missing.contains(&sender));
        if !is_missing(&self.lock()) {
            return Err(RequestRefusal::NotExpected(sender).into());
        }
        let pieces = of.view.pieces(self.me);
        let parts = common(of.view.pieces_before(sender), pieces);
        let planes = {
            let mut tensors = of.new.write().expect("no update has panicked");
            tensors.fill_selected(&local(pieces, &parts), fill)?;
            tensors.numbers_per_parameter()
        };
        let mut state = self.lock();
        state.updates = state.updates.max(handover.updates);
        state.tally.received += (load(&parts) * planes) as u64;
        if let TensorPhase::Moving { missing, .. } = &mut state.phase {
            missing.remove(&sender);
        }
        drop(state);
        self.settle(&of);
        Ok(())
    }

    /// Ends the move after the last piece has arrived.
    fn settle(&self, of: &PieceMove) {
        let state = self.lock();
        match &state.phase {
            TensorPhase::Moving { missing, copying } if missing.is_empty() && !copying => {}
            _ => {
                self.notify();
                return;
            }
        }
        drop(state);
        // The tensors do not change before the phase does.
        let after = of
            .new
            .read()
            .expect("no update has panicked")
            .checksum(of.view.pieces(self.me));
        let mut state = self.lock();
        if matches!(state.phase, TensorPhase::Moving { .. }) {
            state.tally.after = after;
            state.tally.took_us = of.began.elapsed().as_micros() as u64;
            state.phase = TensorPhase::Ready;
            state.moving = None;
            self.follow(&mut state);
        }
        self.notify();
    }

    /// Coordinator: waits for the end of the move to the present layout and returns its checksums.
    ///
    /// # Errors
    /// [`RequestRefusal::NotChief`].
    pub(super) fn tally(
        &self,
        connection_id: ConnectionId,
    ) -> Result<ReshardingReport, RequestRefusal> {
        let mut state = self.lock();
        if !state.is_chief(connection_id.task) {
            return Err(RequestRefusal::NotChief);
        }
        if let Some((_, change)) = state.pending.clone()
            && let Some(chief) = state.member(connection_id.task)
        {
            // A shard outside that view has no other message that the coordinator has entered it.
            chief.entered = change.view.number;
            self.follow(&mut state);
            self.notify();
        }
        let is_moving = |state: &ShardState| matches!(state.phase, TensorPhase::Moving { .. });
        while (is_moving(&state) || !state.handed_over || state.pending.is_some())
            && !state.broken
            && !state.finished
        {
            state = self.wait(state);
        }
        Ok(state.tally)
    }
}

impl PieceMove {
    /// Copies the pieces that stay here. Returns the checksum of the previous content.
    pub fn keep(&self, me: TaskId) -> u64 {
        let old = self.old.read().expect("no update has panicked");
        let (pieces, before) = (self.view.pieces(me), self.view.pieces_before(me));
        self.new
            .write()
            .expect("no update has panicked")
            .take_over(pieces, &old, before);
        old.checksum(before)
    }

    /// Calls `send` with the values for `receiver`; `None` if there are none.
    pub fn give<R>(
        &self,
        me: TaskId,
        receiver: &[ParameterPiece],
        send: impl FnOnce(&[&[f32]]) -> R,
    ) -> Option<R> {
        let before = self.view.pieces_before(me);
        let parts = common(before, receiver);
        if parts.is_empty() {
            return None;
        }
        let old: &Tensors = &self.old.read().expect("no update has panicked");
        Some(send(&old.select(&local(before, &parts))))
    }
}
