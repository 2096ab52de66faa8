//! A node: a machine with an executor, what it offers and whether work may go there.

use crate::id::NodeId;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    pub id: NodeId,
    /// Unique; a node that comes back under its name is the same node.
    pub name: String,
    pub state: NodeState,
    /// Drained by an administrator: takes no new task, and its tasks move away.
    pub drained: bool,
    /// Closed for new tasks, because too many failed there.
    pub excluded: Option<Excluded>,
    pub capacity: Capacity,
    /// Version of what the node was told to run; it refuses an older one.
    pub generation: u64,
    #[serde(with = "time::serde::rfc3339")]
    pub last_seen_at: OffsetDateTime,
}

/// Why a node takes no new tasks although nobody has drained it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Excluded {
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    pub why: String,
}

/// What a node offers to tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Capacity {
    /// GPUs, or CPU slots that stand for them; index is the position.
    pub gpus: Vec<Gpu>,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    /// Nodes with the same name here are nearer to each other than to others; `None`: nobody said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Gpu {
    pub index: u32,
    pub kind: GpuKind,
    /// Product name as the driver tells it (`NVIDIA H200`), or `cpu`.
    pub model: String,
    pub memory_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum GpuKind {
    Cuda,
    /// A share of the CPU that stands for a GPU on machines without one.
    CpuSlot,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum NodeState {
    /// Has a session, or had one less than its lease ago.
    Up,
    /// Its lease has run out: it has stopped its tasks itself, and they count as lost.
    Lost,
}

impl NodeState {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Lost => "lost",
        }
    }
}
