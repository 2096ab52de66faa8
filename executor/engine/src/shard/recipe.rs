//! What a shard makes its tensors from, whatever pieces it is given.

use super::tensors::{Segment, Tensors};
use crate::assign::{Piece, load};
use crate::model::{Block, Fill, Role};
use crate::optimizer::Optimizer;

/// Of a job: the same for every shard.
#[derive(Debug, Clone)]
pub struct Recipe {
    pub optimizer: Optimizer,
    /// The network's.
    pub blocks: Vec<Block>,
    /// For updates.
    pub threads: usize,
}

impl Recipe {
    /// Of `parameters` weights of no network in particular.
    #[must_use]
    pub fn weights(optimizer: Optimizer, parameters: usize, threads: usize) -> Self {
        let block = Block {
            name: "weights".to_owned(),
            offset: 0,
            len: parameters,
            shape: vec![parameters],
            role: Role::Weight,
            fill: Fill::Constant(0.0),
        };
        Self {
            optimizer,
            blocks: vec![block],
            threads,
        }
    }

    /// Parameters of the whole network.
    #[must_use]
    pub fn parameters(&self) -> usize {
        self.blocks.last().map_or(0, |block| block.range().end)
    }

    /// Whether such pieces can be held at all: ascending, apart from each other, inside the network.
    #[must_use]
    pub fn allows(&self, pieces: &[Piece]) -> bool {
        let mut end = 0;
        let in_order = pieces.iter().all(|piece| {
            let follows = piece.len > 0 && piece.offset >= end;
            let piece_end = piece.offset.checked_add(piece.len);
            end = piece_end.unwrap_or(usize::MAX);
            follows && piece_end.is_some()
        });
        in_order && end <= self.parameters()
    }

    /// Zeros for these pieces.
    #[must_use]
    pub fn tensors(&self, pieces: &[Piece]) -> Tensors {
        let tensors = Tensors::new(
            self.optimizer.clone(),
            Segment::of(&self.blocks, pieces),
            self.threads,
        );
        debug_assert_eq!(tensors.parameters().len(), load(pieces));
        tensors
    }
}
