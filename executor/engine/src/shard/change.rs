//! From one view to the next, and the pieces that move.
//!
//! The chief announces the next view and its first step to every shard of both views before anyone can be past that step: under BSP
//! with its push of the step before still to come, so that every shard completes that step for the old view's workers, answers it with the
//! new view, and only then belongs to it. A shard that tells the chief who has gone completes the step no sooner than it has the chief's word
//! on them: what is missing may come after all, by another worker's sum or late. Under SSP and ASP the shards answer every push with the
//! new view from the announcement on, and it holds once each of the old view's workers has asked for parameters under it, has left or is
//! lost.
//!
//! Pieces then go from shard to shard while the workers compute already: they have the parameters of the last step of the old view. What
//! they push is read, and applied once everything is in its place.

use super::exchange::Exchange;
use super::state::{Move, Phase, Standing, State};
use super::tensors::Tensors;
use super::words::{Refusal, Seat};
use crate::assign::{Piece, common, load, local};
use crate::clock;
use crate::wire::view::{Change, Handover, Tally, View};
use muster_model::id::TaskId;
use std::collections::BTreeSet;
use std::sync::{Arc, RwLock};

impl Exchange {
    /// The chief's word that `change` follows at step `from`. Whether pieces will move to or from this shard.
    ///
    /// # Errors
    /// [`Refusal::NotChief`]; [`Refusal::Change`] when it cannot follow.
    pub fn change(&self, seat: Seat, from: u64, change: Change) -> Result<bool, Refusal> {
        let mut state = self.lock();
        if !state.is_chief(seat.task) {
            return Err(Refusal::NotChief);
        }
        self.judge(&state, from, &change)?;
        for gone in &change.gone {
            let is_open = state.version < from || !self.is_bsp();
            state.forget_owed(|_, task| task == *gone);
            if let Some(member) = state.member(*gone).filter(|_| is_open) {
                member.standing = Standing::Dropped;
                // What it pushed for others as well counts: theirs cannot be told from its own any more.
                member.push.take_if(|push| push.together.is_none());
                member.parts.clear();
            }
        }
        // Whoever has not come yet and is not in the next view never comes.
        for member in &mut state.members {
            if member.standing == Standing::Awaited && change.view.rank(member.task).is_none() {
                member.standing = Standing::Dropped;
            }
        }
        let moves = self.moves(&state, &change.view);
        state.awaits_decision = false;
        state.pending = Some((from, Arc::new(change)));
        self.follow(&mut state);
        self.notify();
        Ok(moves)
    }

    fn judge(&self, state: &State, from: u64, change: &Change) -> Result<(), Refusal> {
        let view = &change.view;
        let all = view.shards.iter().chain(&view.before);
        if !all
            .into_iter()
            .all(|holder| self.recipe.allows(&holder.pieces))
        {
            return Err(Refusal::Change("its pieces are not those of the network"));
        }
        let known = state
            .pending
            .as_ref()
            .map_or(state.number(), |(_, change)| change.view.number);
        if view.number <= known {
            return Err(Refusal::Change("it is not newer"));
        }
        if view.workers.first() != state.chief.as_ref() {
            return Err(Refusal::Change("its first worker is not the chief"));
        }
        let follows = match (&state.phase, self.is_bsp()) {
            (Phase::Empty, _) => true,
            (_, true) => from == state.version || from == state.version + 1,
            (_, false) => from == state.next_step(self.consistency),
        };
        match follows {
            true => Ok(()),
            false => Err(Refusal::Change("it begins at another step")),
        }
    }

    pub(super) fn is_bsp(&self) -> bool {
        self.consistency.is_bulk_synchronous()
    }

    /// So many workers' gradients of a step are not waited for.
    pub(super) fn backup(&self) -> u32 {
        self.consistency.backup()
    }

    /// Whether answers tell only what changed: everyone who is answered then has the parameters of the step before.
    pub(super) fn answers_encoded(&self) -> bool {
        self.is_bsp() && self.backup() == 0
    }

    /// Whether it keeps what workers know of its parameters.
    pub(super) fn keeps_known(&self) -> bool {
        self.answers_encoded() && self.recipe.codecs.is_some()
    }

    /// Whether pieces come to this shard or go from it when `view` follows.
    fn moves(&self, state: &State, view: &View) -> bool {
        let layout = state.view.as_ref().map_or(0, |view| view.layout);
        view.layout != layout
            && !view.before.is_empty()
            && view.pieces(self.me) != view.pieces_before(self.me)
    }

    /// Completes what can be completed: the step, then the change that waits for it.
    pub(super) fn follow(&self, state: &mut State) {
        if self.is_bsp() {
            self.apply_if_complete(state);
        }
        let Some((from, change)) = state.pending.clone() else {
            return;
        };
        let due = match state.phase {
            Phase::Empty => true,
            _ if self.is_bsp() => state.version == from,
            _ => state.all_entered(change.view.number),
        };
        if due {
            state.pending = None;
            self.install(state, from, &change);
        }
    }

    fn install(&self, state: &mut State, from: u64, change: &Change) {
        let view = &change.view;
        let moves = self.moves(state, view);
        let new_layout = state.view.as_ref().map_or(0, |view| view.layout) != view.layout;
        let was_empty = state.phase == Phase::Empty;
        // Who comes to an heir, and with what, it cannot know.
        state.install(from, change, self.is_bsp() && !was_empty, self.is_heir());
        if new_layout && self.is_heard_singly() {
            state.forget_said();
        }
        let pieces = view.pieces(self.me);
        if new_layout {
            state.tally = Tally {
                layout: view.layout,
                before: 0,
                after: 0,
                received: 0,
                took_us: 0,
            };
        }
        if new_layout {
            state.squeeze = self.recipe.squeeze(pieces).map(Arc::new);
            // As long as codes of the pieces before were.
            state.spare_codes = Vec::new();
        }
        if new_layout && view.before.is_empty() {
            state.tensors = Arc::new(RwLock::new(
                self.recipe.tensors(pieces, self.answers_encoded()),
            ));
        } else if moves {
            self.begin_move(state, pieces);
        } else if !view.has_shard(self.me) {
            state.phase = Phase::Retired;
        } else if was_empty && !view.before.is_empty() {
            // A new shard for which nothing is left.
            state.phase = Phase::Ready;
        }
    }

    fn begin_move(&self, state: &mut State, pieces: &[Piece]) {
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
        state.phase = match view.has_shard(self.me) {
            true => Phase::Moving {
                missing,
                copying: true,
            },
            false => Phase::Retired,
        };
        state.handed_over = false;
        state.moving = Some(Move {
            view,
            old,
            new,
            updates: state.updates,
            began: clock::now(),
        });
    }

    /// Waits until the move to a layout after `done` begins; `None` when it never will.
    pub(super) fn await_move(&self, layout: u64) -> Option<Move> {
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

    /// What this shard keeps is in its place.
    pub(super) fn kept(&self, of: &Move, before: u64) {
        let mut state = self.lock();
        state.tally.before = before;
        if let Phase::Moving { copying, .. } = &mut state.phase {
            *copying = false;
        }
        drop(state);
        self.settle(of);
    }

    /// Everything that goes elsewhere is there, or cannot be brought there.
    pub(super) fn handed_over(&self, well: bool) {
        let mut state = self.lock();
        state.handed_over = true;
        state.broken |= !well;
        if state.phase == Phase::Retired {
            // Nobody asks for what was held here any more.
            state.moving = None;
        }
        self.notify();
    }

    /// Another shard hands over pieces: waits until there is room for them, and lets `fill` write them.
    ///
    /// # Errors
    /// [`Refusal::NotExpected`], or what `fill` failed with.
    pub(super) fn receive<E: From<Refusal>>(
        &self,
        sender: TaskId,
        handover: Handover,
        fill: impl FnOnce(&mut [&mut [f32]]) -> Result<(), E>,
    ) -> Result<(), E> {
        let of = self
            .await_move(handover.layout)
            .ok_or(Refusal::NotExpected(sender))?;
        let is_missing = |state: &State| matches!(&state.phase, Phase::Moving { missing, .. } if missing.contains(&sender));
        if !is_missing(&self.lock()) {
            return Err(Refusal::NotExpected(sender).into());
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
        if let Phase::Moving { missing, .. } = &mut state.phase {
            missing.remove(&sender);
        }
        drop(state);
        self.settle(&of);
        Ok(())
    }

    /// Goes on once the last piece is in its place.
    fn settle(&self, of: &Move) {
        let state = self.lock();
        match &state.phase {
            Phase::Moving { missing, copying } if missing.is_empty() && !copying => {}
            _ => {
                self.notify();
                return;
            }
        }
        drop(state);
        // Nobody changes the tensors before the phase is another.
        let after = of
            .new
            .read()
            .expect("no update has panicked")
            .checksum(of.view.pieces(self.me));
        let mut state = self.lock();
        if matches!(state.phase, Phase::Moving { .. }) {
            state.tally.after = after;
            state.tally.took_us = of.began.elapsed().as_micros() as u64;
            state.phase = Phase::Ready;
            state.moving = None;
            self.follow(&mut state);
        }
        self.notify();
    }

    /// Chief: how the move to the present layout went, once it is over.
    ///
    /// # Errors
    /// [`Refusal::NotChief`].
    pub(super) fn tally(&self, seat: Seat) -> Result<Tally, Refusal> {
        let mut state = self.lock();
        if !state.is_chief(seat.task) {
            return Err(Refusal::NotChief);
        }
        if let Some((_, change)) = state.pending.clone()
            && let Some(chief) = state.member(seat.task)
        {
            // A shard that is not in that view has no other word of the chief's entering it.
            chief.entered = change.view.number;
            self.follow(&mut state);
            self.notify();
        }
        let is_moving = |state: &State| matches!(state.phase, Phase::Moving { .. });
        while (is_moving(&state) || !state.handed_over || state.pending.is_some())
            && !state.broken
            && !state.finished
        {
            state = self.wait(state);
        }
        Ok(state.tally)
    }
}

impl Move {
    /// Carries over what stays here; the checksum of what was held before.
    pub fn keep(&self, me: TaskId) -> u64 {
        let old = self.old.read().expect("no update has panicked");
        let (pieces, before) = (self.view.pieces(me), self.view.pieces_before(me));
        self.new
            .write()
            .expect("no update has panicked")
            .take_over(pieces, &old, before);
        old.checksum(before)
    }

    /// Lets `send` have what goes to `receiver`; nothing goes where it returns `None`.
    pub fn give<R>(
        &self,
        me: TaskId,
        receiver: &[Piece],
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
