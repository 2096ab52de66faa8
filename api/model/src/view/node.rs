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
    /// Of the caller's tenant, or where an administrator asks.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub task_id: Option<TaskId>,
}

/// How long a one-time join token shall count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct NewJoinToken {
    /// Seconds from now, at most 604800 (a week); an hour where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime_s: Option<u64>,
}

/// A one-time join token just made. It is shown this once and stored nowhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CreatedJoinToken {
    pub node: String,
    /// The executor's `--join-token`, for its first session.
    pub token: String,
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
}

/// The job that holds a GPU. Whose it is and which, of another tenant, is shown to administrators only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Occupant {
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub id: Option<JobId>,
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub name: Option<String>,
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub tenant: Option<String>,
}
