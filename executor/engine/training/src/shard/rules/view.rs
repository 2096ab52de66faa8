//! View changes: their check, and the entry into the next view.

use super::super::messages::RequestRefusal;
use super::super::state::{
    IncomingPieces, PendingChange, PieceMove, ShardPhase, ShardState, tally_of,
};
use super::ShardRules;
use muster_comm::assign::{ParameterPiece, common};
use muster_comm::wire::view::{TaskSetView, ViewChange};
use muster_compute::clock;
use muster_model::id::TaskId;
use std::collections::BTreeSet;
use std::sync::{Arc, RwLock};

impl ShardRules {
    /// Checks that a change can follow the present view.
    pub fn judge(
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
        let known = state.next_view().map_or(state.number(), |view| view.number);
        if view.number <= known {
            return Err(RequestRefusal::Change("it is not newer"));
        }
        if view.workers.first() != state.connected.chief.as_ref() {
            return Err(RequestRefusal::Change("its first worker is not the chief"));
        }
        let follows = state.phase.is_empty() || self.model.may_begin(state, from);
        if follows {
            Ok(())
        } else {
            Err(RequestRefusal::Change("it begins at another step"))
        }
    }

    /// Whether pieces move to or from this shard when `view` follows.
    pub fn moves(&self, state: &ShardState, view: &TaskSetView) -> bool {
        view.layout != state.layout()
            && !view.before.is_empty()
            && view.pieces(self.me) != view.pieces_before(self.me)
    }

    /// Completes the step if possible, then the pending change.
    pub fn follow(&self, state: &mut ShardState) {
        self.model.complete_step(self, state);
        let Some(pending) = state.pending.clone() else {
            return;
        };
        if state.phase.is_empty() || self.model.is_due(state, &pending) {
            state.pending = None;
            self.install(state, &pending);
        }
    }

    fn install(&self, state: &mut ShardState, pending: &PendingChange) {
        let PendingChange { from, change } = pending;
        let view = &change.view;
        let moves = self.moves(state, view);
        let new_layout = state.layout() != view.layout;
        let was_empty = state.phase.is_empty();
        // At a promoted replica it is not known which workers will connect, and with which pushes.
        state.install(
            *from,
            change,
            self.model.is_synchronous() && !was_empty,
            self.is_promoted(),
        );
        let pieces = view.pieces(self.me);
        if new_layout {
            if self.is_heard_singly() {
                state.residuals.forget_said();
            }
            state.tally = tally_of(view.layout);
            state.encoding.begin_layout(self.recipe.shard_codec(pieces));
        }
        if new_layout && view.before.is_empty() {
            state.tensors = Arc::new(RwLock::new(self.empty_tensors(pieces)));
        } else if moves {
            self.begin_move(state, pieces);
        } else if !view.has_shard(self.me) {
            state.phase.retire();
        } else if was_empty && !view.before.is_empty() {
            // A new shard for which no pieces are left.
            state.phase = ShardPhase::Ready;
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
        let new = Arc::new(RwLock::new(self.empty_tensors(pieces)));
        let old = std::mem::replace(&mut state.tensors, Arc::clone(&new));
        let piece_move = PieceMove {
            view,
            old,
            new,
            updates: state.updates,
            began: clock::now(),
        };
        state.phase = if piece_move.view.has_shard(self.me) {
            ShardPhase::Moving(IncomingPieces {
                piece_move,
                missing,
                copying: true,
            })
        } else {
            ShardPhase::Retired {
                outgoing: Some(piece_move),
            }
        };
        state.handed_over = false;
    }
}
