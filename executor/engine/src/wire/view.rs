//! Who takes part, and which PS shard holds what: told by the chief to the shards, and by them to the workers.
//!
//! A view holds from one step on. Its number grows by one with each; its layout grows only when pieces move from shard to shard, so
//! that two views which differ in their workers alone move nothing.

use crate::assign::Piece;
use muster_model::id::TaskId;
use serde::{Deserialize, Serialize};

/// One view of a job's task set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct View {
    /// From 1.
    pub number: u64,
    /// Of the job's task set that the chief followed.
    pub revision: u64,
    /// From 1.
    pub layout: u64,
    /// In the order of their ranks; the first is the chief.
    pub workers: Vec<TaskId>,
    /// In the order of their index.
    pub shards: Vec<Holder>,
    /// Who held what in the layout before this one: pieces come from there. Empty in the first layout, which the chief fills.
    pub before: Vec<Holder>,
}

/// A PS shard and what lives on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Holder {
    pub task_id: TaskId,
    /// `host:port`.
    pub address: String,
    /// Ascending, apart from each other.
    pub pieces: Vec<Piece>,
}

/// The chief's word that a view follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    pub view: View,
    /// Workers whose gradients the step before is completed without, wherever it is not complete yet.
    pub gone: Vec<TaskId>,
}

/// A worker that went away before its time, or has not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Departed {
    pub task_id: TaskId,
    /// It said goodbye.
    pub in_order: bool,
    /// It has not come yet and others wait for it: the chief knows whether it ever will.
    #[serde(default)]
    pub never_came: bool,
}

/// What a shard has to say of the newest layout, once every piece is in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    pub layout: u64,
    /// Checksum of what it held before and holds now; over all shards the sums are the same.
    pub before: u64,
    pub after: u64,
    /// Numbers that it received from other shards.
    pub received: u64,
    /// From the end of the step before to the last piece in its place.
    pub took_us: u64,
}

/// What a shard tells another one with the pieces that it hands over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handover {
    pub layout: u64,
    /// Updates applied to them.
    pub updates: u64,
}

/// How far a shard is whose copy is kept, once it has applied what comes with this.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shipped {
    /// Number of the view that holds.
    pub view: u64,
    pub layout: u64,
    /// What it holds; only with the whole copy.
    #[serde(default)]
    pub pieces: Vec<Piece>,
    pub version: u64,
    pub updates: u64,
    /// The next step of every worker.
    pub clocks: Vec<(TaskId, u64)>,
    /// The turn in which all stand still after this step; 0: none.
    #[serde(default)]
    pub hold: u64,
    /// What the sum of gradients is multiplied by, as bits: decimal numbers would come out rounded.
    pub factors: [u32; 3],
}

impl View {
    /// Where the copy of `shard` is kept that lives at `host`: with the next one in the order of their index, but not where it lives
    /// itself. None among too few shards.
    #[must_use]
    pub fn follower(&self, shard: TaskId, host: TaskId) -> Option<&Holder> {
        let at = self
            .shards
            .iter()
            .position(|holder| holder.task_id == shard)?;
        let (before, after) = self.shards.split_at(at);
        let mut others = after[1..].iter().chain(before);
        // A lost one may live there too.
        let here = self.shards.iter().find(|holder| holder.task_id == host);
        let here = here.map(|holder| &holder.address);
        others.find(|holder| holder.task_id != host && Some(&holder.address) != here)
    }

    /// In whose process a shard may live: its own, and, as it may be lost and have an heir, those of others that are reached where it is.
    #[must_use]
    pub fn hosts(&self, shard: &Holder) -> Vec<TaskId> {
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

    /// What a shard holds in this view; nothing when it is not in it.
    #[must_use]
    pub fn pieces(&self, shard: TaskId) -> &[Piece] {
        pieces_of(&self.shards, shard)
    }

    /// What each shard holds, in the shards' order.
    #[must_use]
    pub fn assignment(&self) -> Vec<Vec<Piece>> {
        let pieces = |holder: &Holder| holder.pieces.clone();
        self.shards.iter().map(pieces).collect()
    }

    /// What a shard held in the layout before.
    #[must_use]
    pub fn pieces_before(&self, shard: TaskId) -> &[Piece] {
        pieces_of(&self.before, shard)
    }

    /// Whether this shard holds something, or nothing but belongs to it.
    #[must_use]
    pub fn has_shard(&self, shard: TaskId) -> bool {
        self.shards.iter().any(|holder| holder.task_id == shard)
    }
}

fn pieces_of(holders: &[Holder], shard: TaskId) -> &[Piece] {
    holders
        .iter()
        .find(|holder| holder.task_id == shard)
        .map_or(&[], |holder| &holder.pieces)
}
