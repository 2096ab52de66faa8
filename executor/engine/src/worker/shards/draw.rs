//! Copies of their state that all shards have made, and that whoever writes a checkpoint draws into its memory.

use super::at_once::at_once;
use super::snapshot::shares;
use crate::assign::Piece;
use crate::checkpoint::{Contents, Source, SourceError};
use crate::wire::WireError;
use crate::worker::link::{Lent, Side};
use muster_model::id::TaskId;

/// What [`super::Shards::lend`] leaves to be done.
#[derive(Debug)]
pub struct Draw {
    sides: Vec<(TaskId, Side, Lent)>,
    /// As it was when they were made: pieces may move meanwhile.
    assignment: Vec<Vec<Piece>>,
}

/// Why copies could not be drawn. The shard may be lost or have left, or has made another copy since.
#[derive(Debug, thiserror::Error)]
#[error("PS shard {shard} gave no copy of its state")]
pub struct DrawError {
    pub shard: TaskId,
    #[source]
    pub source: WireError,
}

impl Draw {
    pub(super) fn of(sides: Vec<(TaskId, Side, Lent)>, assignment: Vec<Vec<Piece>>) -> Self {
        Self { sides, assignment }
    }
}

/// Fills the contents of the snapshot that it came with.
impl Source for Draw {
    fn fill(&self, contents: &mut Contents) -> Result<(), SourceError> {
        let sides = self.sides.iter();
        let shares = shares(contents, &self.assignment);
        let drawn = at_once(
            sides
                .zip(shares)
                .map(|((_, side, lent), share)| move || side.draw(*lent, share)),
        );
        drawn.map_err(|(index, source)| DrawError {
            shard: self.sides[index].0,
            source,
        })?;
        Ok(())
    }
}
