//! Snapshot buffers of all shards, which the writer of a checkpoint reads into its memory.

use super::parallel::in_parallel;
use super::snapshot::shares;
use crate::checkpoint::{Contents, ContentsSource, ContentsSourceError};
use crate::worker::link::{SnapshotConnection, SnapshotId};
use muster_comm::assign::ParameterPiece;
use muster_comm::wire::WireError;
use muster_model::id::TaskId;

/// Transfer that [`super::Shards::lend`] leaves to the writer.
#[derive(Debug)]
pub struct SnapshotStream {
    sides: Vec<(TaskId, SnapshotConnection, SnapshotId)>,
    /// Assignment at the time of the snapshots: pieces may move meanwhile.
    assignment: Vec<Vec<ParameterPiece>>,
}

/// Error of a transfer: the shard is lost or has left, or has made a newer snapshot.
#[derive(Debug, thiserror::Error)]
#[error("PS shard {shard} gave no copy of its state")]
pub struct SnapshotStreamError {
    pub shard: TaskId,
    #[source]
    pub source: WireError,
}

impl SnapshotStream {
    pub(super) fn of(
        sides: Vec<(TaskId, SnapshotConnection, SnapshotId)>,
        assignment: Vec<Vec<ParameterPiece>>,
    ) -> Self {
        Self { sides, assignment }
    }
}

/// Fills the contents of the snapshot that was returned with it.
impl ContentsSource for SnapshotStream {
    fn fill(&self, contents: &mut Contents) -> Result<(), ContentsSourceError> {
        let sides = self.sides.iter();
        let shares = shares(contents, &self.assignment);
        let drawn = in_parallel(
            sides
                .zip(shares)
                .map(|((_, side, lent), share)| move || side.draw(*lent, share)),
        );
        drawn.map_err(|(index, source)| SnapshotStreamError {
            shard: self.sides[index].0,
            source,
        })?;
        Ok(())
    }
}
