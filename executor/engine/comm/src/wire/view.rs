//! Views: the workers that take part and the pieces of each PS shard. The coordinator (`chief`)
//! sends a view to the shards, and the shards send it to the workers.
//!
//! A view holds from one step on. Its number grows by one with each view. The number of the layout
//! grows only when pieces move between shards, so two views that differ only in their workers move
//! nothing.

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
    /// Holders in the previous layout, from which pieces are moved. Empty in the first layout,
    /// which the coordinator fills.
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

/// Worker that departed before the end of training or has not connected yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Departed {
    pub task_id: TaskId,
    /// Whether the worker said goodbye.
    pub in_order: bool,
    /// Whether the worker has not connected while others wait for it. The coordinator knows whether
    /// it will.
    #[serde(default)]
    pub never_came: bool,
}

/// Report of a shard on the newest layout, after all pieces are installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReshardingReport {
    pub layout: u64,
    /// Checksums of what the shard held before and holds now. The sums over all shards are equal.
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

/// Position of a shard after the frame that a replica holder receives with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicaPosition {
    /// Number of the view that holds.
    pub view: u64,
    pub layout: u64,
    /// Pieces of the shard; only sent with the whole state.
    #[serde(default)]
    pub pieces: Vec<ParameterPiece>,
    pub version: u64,
    pub updates: u64,
    /// Next step of every worker.
    pub clocks: Vec<(TaskId, u64)>,
    /// Time slice (`turn`) for which all tasks suspend after this step; 0 if there is none.
    #[serde(default)]
    pub hold: u64,
    /// Factors of the sum of gradients, as bits because decimal numbers would be rounded.
    pub factors: [u32; 3],
}

impl TaskSetView {
    /// Holder of the replica of `shard`, which runs in the process of `host`: the next shard in
    /// index order that runs in another process. `None` if there is no such shard.
    #[must_use]
    pub fn replica_holder(&self, shard: TaskId, host: TaskId) -> Option<&ShardAssignment> {
        let at = self
            .shards
            .iter()
            .position(|holder| holder.task_id == shard)?;
        let (before, after) = self.shards.split_at(at);
        let mut others = after[1..].iter().chain(before);
        // A promoted replica can run there too.
        let here = self.shards.iter().find(|holder| holder.task_id == host);
        let here = here.map(|holder| &holder.address);
        others.find(|holder| holder.task_id != host && Some(&holder.address) != here)
    }

    /// Processes in which a shard may run: its own, and those of other shards with the same
    /// address, because a promoted replica (`promoted`) runs in the process of another shard.
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

    /// Rank of a worker.
    #[must_use]
    pub fn rank(&self, worker: TaskId) -> Option<usize> {
        self.workers.iter().position(|&task| task == worker)
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
