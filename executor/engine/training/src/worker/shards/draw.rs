//! Snapshot buffers of all shards, which the writer of a checkpoint reads into its memory.

use super::at_once::at_once;
use super::snapshot::shares;
use crate::checkpoint::{Contents, Source, SourceError};
use crate::worker::link::{Lent, Side};
use muster_comm::assign::Piece;
use muster_comm::wire::WireError;
use muster_model::id::TaskId;

/// Transfer that [`super::Shards::lend`] leaves to the writer.
#[derive(Debug)]
pub struct Draw {
    sides: Vec<(TaskId, Side, Lent)>,
    /// Assignment at the time of the snapshots: pieces may move meanwhile.
    assignment: Vec<Vec<Piece>>,
}

/// Error of a transfer: the shard is lost or has left, or has made a newer snapshot.
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

/// Fills the contents of the snapshot that was returned with it.
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
