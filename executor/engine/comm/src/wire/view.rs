//! Views: the workers that take part in a job and the pieces of the parameters that each PS shard
//! holds. The coordinator (`chief`) sends a view to the shards, and the shards send it to the
//! workers, as JSON in the metadata of frames.
//!
//! A view holds from a step until the next view. Its number grows by one with each view. The number
//! of the layout (the division of pieces among shards) grows only when pieces move. Two views that
//! differ only in their workers move nothing.

use crate::assign::ParameterPiece;
use muster_model::id::TaskId;
use serde::{Deserialize, Serialize};

/// One view of a job's task set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskSetView {
    /// Number of the view, from 1.
    pub number: u64,
    /// Revision of the task set from which the coordinator made the view.
    pub revision: u64,
    /// Number of the layout, from 1.
    pub layout: u64,
    /// Workers in the order of their ranks; the first is the coordinator.
    pub workers: Vec<TaskId>,
    /// Shards in the order of their index.
    pub shards: Vec<ShardAssignment>,
    /// Shards in the previous layout, which hand their pieces over. Empty in the first layout,
    /// whose pieces the coordinator sends.
    pub before: Vec<ShardAssignment>,
}

/// PS shard and its pieces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardAssignment {
    pub task_id: TaskId,
    /// `host:port`.
    pub address: String,
    /// Pieces in ascending order, without overlap.
    pub pieces: Vec<ParameterPiece>,
}

/// Coordinator's announcement of a view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ViewChange {
    pub view: TaskSetView,
    /// Lost workers. Shards that have not completed the step before the view complete it without
    /// the gradients of these workers.
    pub gone: Vec<TaskId>,
}

/// Worker that departed before the end of training, or that has not connected while others wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Departed {
    pub task_id: TaskId,
    /// Whether the worker sent a Goodbye.
    pub in_order: bool,
    /// Whether the worker has never connected. The shard cannot know whether it still will; the
    /// coordinator decides.
    #[serde(default)]
    pub never_came: bool,
}

/// Report of a shard on the newest layout, after all pieces are installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReshardingReport {
    pub layout: u64,
    /// Checksums of the values that the shard held before and holds now. If nothing was lost or
    /// changed, their sums over all shards are equal.
    pub before: u64,
    pub after: u64,
    /// Number of values received from other shards.
    pub received: u64,
    /// Time from the end of the previous step to the installation of the last piece, in
    /// microseconds.
    pub took_us: u64,
}

/// Metadata of pieces that one shard sends to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handover {
    pub layout: u64,
    /// Number of updates applied to the pieces.
    pub updates: u64,
}

/// Metadata of the frames that a shard sends to the holder of its replica: the state of the shard
/// after the update in the payload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicaPosition {
    /// Number of the present view.
    pub view: u64,
    /// Number of the present layout.
    pub layout: u64,
    /// Pieces of the shard; only sent with the complete state (a Copy).
    #[serde(default)]
    pub pieces: Vec<ParameterPiece>,
    /// Number of steps that the shard has applied under BSP.
    pub version: u64,
    /// Number of applied updates: steps under BSP, pushes otherwise.
    pub updates: u64,
    /// Next step of every worker.
    pub clocks: Vec<(TaskId, u64)>,
    /// As in [`super::metadata::StepStats`]: time slice (`turn`) for which all tasks suspend after
    /// this step; 0 if there is none.
    #[serde(default)]
    pub hold: u64,
    /// Factors of the sum of gradients: scale, clip factor and factor of the learning rate. They
    /// are the bits of `f32`, because decimal numbers in JSON would be rounded.
    pub factors: [u32; 3],
}

impl TaskSetView {
    /// Holder of the replica of `shard`: the next shard in cyclic index order that runs in another
    /// process, or `None`. `shard` runs in the process of the task `host`, which is another shard's
    /// after a replica was promoted.
    #[must_use]
    pub fn replica_holder(&self, shard: TaskId, host: TaskId) -> Option<&ShardAssignment> {
        let at = self
            .shards
            .iter()
            .position(|holder| holder.task_id == shard)?;
        let (before, after) = self.shards.split_at(at);
        let mut others = after[1..].iter().chain(before);
        // Another shard whose replica was promoted can run in the process of `host`. It then has
        // the same address.
        let here = self.shards.iter().find(|holder| holder.task_id == host);
        let here = here.map(|holder| &holder.address);
        others.find(|holder| holder.task_id != host && Some(&holder.address) != here)
    }

    /// Tasks in whose process a shard may run: its own, and other shards with the same address. A
    /// promoted replica runs in the process of another shard.
    #[must_use]
    pub fn hosts(&self, shard: &ShardAssignment) -> Vec<TaskId> {
        let others = self
            .shards
            .iter()
            .filter(|other| other.task_id != shard.task_id && other.address == shard.address);
        std::iter::once(shard)
            .chain(others)
            .map(|holder| holder.task_id)
            .collect()
    }

    /// Rank of a worker; `None` if it does not take part.
    #[must_use]
    pub fn rank(&self, worker: TaskId) -> Option<usize> {
        self.workers.iter().position(|&task| task == worker)
    }

    /// Index of a shard; `None` if the view does not contain it.
    #[must_use]
    pub fn shard_index(&self, shard: TaskId) -> Option<usize> {
        self.shards.iter().position(|held| held.task_id == shard)
    }

    /// Pieces of a shard in this view; empty if the view does not contain it.
    #[must_use]
    pub fn pieces(&self, shard: TaskId) -> &[ParameterPiece] {
        pieces_of(&self.shards, shard)
    }

    /// Pieces of all shards, in the order of the shards.
    #[must_use]
    pub fn assignment(&self) -> Vec<Vec<ParameterPiece>> {
        self.shards
            .iter()
            .map(|holder| holder.pieces.clone())
            .collect()
    }

    /// Pieces of a shard in the previous layout.
    #[must_use]
    pub fn pieces_before(&self, shard: TaskId) -> &[ParameterPiece] {
        pieces_of(&self.before, shard)
    }

    /// Whether the shard belongs to the view, also if it holds no piece.
    #[must_use]
    pub fn has_shard(&self, shard: TaskId) -> bool {
        self.shards.iter().any(|holder| holder.task_id == shard)
    }
}

fn pieces_of(holders: &[ShardAssignment], shard: TaskId) -> &[ParameterPiece] {
    holders
        .iter()
        .find(|holder| holder.task_id == shard)
        .map_or(&[], |holder| &holder.pieces)
}
