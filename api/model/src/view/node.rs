//! Nodes, as answered.

use crate::id::{JobId, NodeId, TaskId};
use crate::node::{Capacity, Excluded, GpuKind, NodeState, Notice};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// A node and what runs on each of its GPUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct NodeView {
    pub id: NodeId,
    pub name: String,
    pub state: NodeState,
    /// Takes no new task; its tasks move away.
    pub drained: bool,
    /// Closed for new tasks, because too many failed there or by its own word; null unless it is. Uncordoning takes it back, unless it says so itself.
    #[cfg_attr(feature = "schema", schema(required = true))]
    #[serde(default)]
    pub excluded: Option<Excluded>,
    /// What the cluster that the machine belongs to, such as Kubernetes, says of it; null where nobody does.
    #[cfg_attr(feature = "schema", schema(required = true))]
    #[serde(default)]
    pub notice: Option<Notice>,
    /// Version of what it was told to run.
    pub generation: u64,
    pub capacity: Capacity,
    #[serde(with = "time::serde::rfc3339")]
    pub last_seen_at: OffsetDateTime,
    /// By index.
    pub gpus: Vec<GpuView>,
    /// Tasks that have not ended, of all tenants; PS shards hold no GPU. Older apis do not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u64>,
}

/// A GPU, or the CPU slot that stands for one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct GpuView {
    pub index: u32,
    pub kind: GpuKind,
    pub model: String,
    pub memory_bytes: u64,
    /// Who holds it; null when it is free.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub job: Option<Occupant>,
    /// Who shares it with that job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<Occupant>,
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub task_id: Option<TaskId>,
}

/// The job that holds a GPU. Another tenant's name and job name are shown to administrators only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Occupant {
    pub id: JobId,
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub name: Option<String>,
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub tenant: Option<String>,
}
