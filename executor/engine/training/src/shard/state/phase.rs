//! Phases of a shard.

use super::super::messages::RequestRefusal;
use super::piece_move::PieceMove;
use muster_model::id::TaskId;
use std::collections::BTreeSet;

/// Phase of a shard, by the content of its tensors.
#[derive(Debug)]
pub enum ShardPhase {
    /// No content yet: waits for the first view and its parameters, or for the promotion of a
    /// replica.
    Empty,
    /// Applies pushes.
    Ready,
    /// Waits for pieces. Pushes are read meanwhile, and applied after the last piece.
    Moving(IncomingPieces),
    /// This shard is not in the view and holds nothing from now on.
    Retired {
        /// The pieces that it sends away, until all have arrived.
        outgoing: Option<PieceMove>,
    },
}

/// Pieces that are missing.
#[derive(Debug)]
pub struct IncomingPieces {
    pub piece_move: PieceMove,
    /// Shards that have not sent theirs.
    pub missing: BTreeSet<TaskId>,
    /// Whether pieces are still copied from the tensors of the previous layout.
    pub copying: bool,
}

impl ShardPhase {
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }

    pub fn is_ready(&self) -> bool {
        matches!(self, Self::Ready)
    }

    pub fn is_moving(&self) -> bool {
        matches!(self, Self::Moving(_))
    }

    pub fn is_retired(&self) -> bool {
        matches!(self, Self::Retired { .. })
    }

    /// Whether pushes can be applied now. `false` while pieces are missing.
    ///
    /// # Errors
    /// [`RequestRefusal::NotInitialised`]; [`RequestRefusal::Change`] outside the view.
    pub fn takes_pushes(&self) -> Result<bool, RequestRefusal> {
        match self {
            Self::Empty => Err(RequestRefusal::NotInitialised),
            Self::Ready => Ok(true),
            Self::Moving(_) => Ok(false),
            Self::Retired { .. } => Err(RequestRefusal::Change("this shard is not in it")),
        }
    }

    /// Whether pieces of shard `sender` are missing.
    pub fn lacks_pieces_of(&self, sender: TaskId) -> bool {
        matches!(self, Self::Moving(incoming) if incoming.missing.contains(&sender))
    }

    /// Returns the move in progress.
    pub fn piece_move(&self) -> Option<&PieceMove> {
        match self {
            Self::Moving(incoming) => Some(&incoming.piece_move),
            Self::Retired { outgoing } => outgoing.as_ref(),
            Self::Empty | Self::Ready => None,
        }
    }

    pub fn incoming_mut(&mut self) -> Option<&mut IncomingPieces> {
        match self {
            Self::Moving(incoming) => Some(incoming),
            Self::Empty | Self::Ready | Self::Retired { .. } => None,
        }
    }

    /// Whether the last piece has arrived.
    pub fn has_all_pieces(&self) -> bool {
        matches!(self, Self::Moving(incoming) if incoming.missing.is_empty() && !incoming.copying)
    }

    /// Enters [`Self::Retired`]. A move in progress continues.
    pub fn retire(&mut self) {
        let outgoing = match std::mem::replace(self, Self::Empty) {
            Self::Moving(incoming) => Some(incoming.piece_move),
            Self::Retired { outgoing } => outgoing,
            Self::Empty | Self::Ready => None,
        };
        *self = Self::Retired { outgoing };
    }

    /// Ends the move of a retired shard: no worker needs the old tensors any more.
    pub fn forget_outgoing(&mut self) {
        if let Self::Retired { outgoing } = self {
            *outgoing = None;
        }
    }
}
