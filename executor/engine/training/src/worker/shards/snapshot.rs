//! Content of the shards for a checkpoint: read at once, or copied into snapshot buffers that are
//! read while training continues.

use super::failover::{LinkFailover, steadily};
use super::parallel::in_parallel;
use super::snapshot_stream::SnapshotStream;
use super::{ShardFailure, Shards};
use crate::checkpoint::Contents;
use crate::worker::link::SnapshotId;
use muster_comm::assign::{ParameterPiece, split_mut};
use muster_comm::wire::metadata::{HALF_DONE, StepStats};
use std::ops::Deref;

/// Name of the known parameters in checkpoints: those that the workers have, where answers are
/// encoded.
pub const KNOWN: &str = "compress.known";

/// Content of the shards at the coordinator's request.
#[derive(Debug, Clone, PartialEq)]
pub struct ShardSnapshot {
    /// Version of each shard. Training can continue from here only if all are equal.
    pub versions: Vec<u64>,
    /// Smallest number of updates of any shard; all are equal under BSP.
    pub updates: u64,
    /// Counts of steps in the snapshot that are not in the curve yet.
    pub counted: StepStats,
    pub contents: Contents,
}

impl ShardSnapshot {
    /// Creates a snapshot from version and updates of each shard.
    fn of(read: &[(u64, u64)], contents: Contents) -> Self {
        Self {
            versions: read.iter().map(|&(version, _)| version).collect(),
            updates: read.iter().map(|&(_, updates)| updates).min().unwrap_or(0),
            counted: StepStats::default(),
            contents,
        }
    }

    /// Returns the common version of all shards, if there is one.
    #[must_use]
    pub fn version(&self) -> Option<u64> {
        let first = *self.versions.first()?;
        let same = self.versions.iter().all(|&version| version == first);
        (same && first != HALF_DONE).then_some(first)
    }
}

impl Shards {
    /// Coordinator: reads the whole content of the shards into the memory of `contents`.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn snapshot(&mut self, contents: Contents) -> Result<ShardSnapshot, ShardFailure> {
        let (mut contents, assignment) = self.laid_out(contents);
        let parts = shares(&mut contents, &assignment);
        let (view, announced) = (self.view.as_ref(), self.announced.as_ref());
        let failover = LinkFailover::of(self.copied, &self.hello, view, self.next_step, announced);
        let links = self.links.iter_mut().zip(parts);
        let within = self.hears_within;
        let read = in_parallel(links.map(|(link, mut part)| {
            move || {
                steadily(link, failover, &|| true, |link| {
                    link.snapshot(within, &mut part)
                })
            }
        }))?;
        Ok(ShardSnapshot::of(&read, contents))
    }

    /// Coordinator: makes every shard copy its content into its snapshot buffer. The
    /// [`SnapshotStream`] fills the contents later, independently of the following steps. If a
    /// shard of an older release accepts no second connection, the contents are read at once and
    /// there is no [`SnapshotStream`].
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn lend(
        &mut self,
        contents: Contents,
    ) -> Result<(ShardSnapshot, Option<SnapshotStream>), ShardFailure> {
        let (view, announced) = (self.view.as_ref(), self.announced.as_ref());
        let failover = LinkFailover::of(self.copied, &self.hello, view, self.next_step, announced);
        let (hello, within) = (&self.hello, self.hears_within);
        let lent = in_parallel(self.links.iter_mut().map(|link| {
            move || {
                steadily(link, failover, &|| true, |link| {
                    // For a replica that was promoted meanwhile, to its host as well.
                    if link.open_side(hello) {
                        link.lend(within).map(Some)
                    } else {
                        Ok(None)
                    }
                })
            }
        }))?;
        let Some(lent) = lent.into_iter().collect::<Option<Vec<SnapshotId>>>() else {
            return Ok((self.snapshot(contents)?, None));
        };
        let (contents, assignment) = self.laid_out(contents);
        let read: Vec<(u64, u64)> = lent
            .iter()
            .map(|lent| (lent.version, lent.updates))
            .collect();
        let links = self.links.iter().zip(&lent);
        let sides = links.map(|(link, &lent)| (link.shard, link.side(), lent));
        let draw = SnapshotStream::of(sides.collect(), assignment);
        Ok((ShardSnapshot::of(&read, contents), Some(draw)))
    }

    /// Allocates memory for the shards' content. Returns it with the pieces of each shard.
    fn laid_out(&self, mut contents: Contents) -> (Contents, Vec<Vec<ParameterPiece>>) {
        let view = self.view.as_ref().expect("the chief has begun");
        contents.fit(self.parameters, self.links[0].state_per_parameter());
        if self.links[0].keeps_known() {
            let known = vec![0.0; self.parameters];
            contents.extras.push((KNOWN.to_owned(), known));
        }
        let links = self.links.iter();
        let assignment = links.map(|link| view.pieces(link.shard).to_vec());
        (contents, assignment.collect())
    }
}

/// Returns each shard's share of the contents, in the order of the shard.
pub(super) fn shares<'a>(
    contents: &'a mut Contents,
    assignment: &[Vec<ParameterPiece>],
) -> Vec<Vec<&'a mut [f32]>> {
    let known = contents.extras.iter_mut().filter(|(name, _)| name == KNOWN);
    let arenas = std::iter::once(&mut contents.parameters)
        .chain(&mut contents.state)
        .chain(known.map(|(_, values)| values));
    let mut shares: Vec<Vec<&mut [f32]>> = assignment.iter().map(|_| Vec::new()).collect();
    for arena in arenas {
        for (share, more) in shares.iter_mut().zip(split_mut(arena, assignment)) {
            share.extend(more);
        }
    }
    shares
}

/// Returns the known parameters; the parameters themselves where a checkpoint has none.
pub fn known(contents: &Contents<impl Deref<Target = [f32]>>) -> &[f32] {
    let kept = contents.extra(KNOWN);
    kept.filter(|known| known.len() == contents.parameters.len())
        .unwrap_or(&contents.parameters)
}
