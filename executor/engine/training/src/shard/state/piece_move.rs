//! Move of pieces from one layout to the next.

use super::super::tensors::Tensors;
use muster_comm::assign::{ParameterPiece, common, local};
use muster_comm::wire::view::TaskSetView;
use muster_model::id::TaskId;
use std::sync::{Arc, RwLock};
use std::time::Instant;

/// Move of pieces to and from this shard.
#[derive(Debug, Clone)]
pub struct PieceMove {
    pub view: Arc<TaskSetView>,
    pub old: Arc<RwLock<Tensors>>,
    pub new: Arc<RwLock<Tensors>>,
    pub updates: u64,
    pub began: Instant,
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

    /// Returns the checksum of the new content.
    pub fn checksum(&self, me: TaskId) -> u64 {
        let new = self.new.read().expect("no update has panicked");
        new.checksum(self.view.pieces(me))
    }
}
