//! Responses about nodes.

use crate::compute_capability::ComputeCapability;
use crate::id::{JobId, NodeId, TaskId};
use crate::node::{Capacity, Excluded, GpuKind, NodeSpeed, NodeState, Notice};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// A node and the use of each of its GPUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct NodeView {
    pub id: NodeId,
    pub name: String,
    pub state: NodeState,
    /// Takes no new task; its tasks move away.
    pub drained: bool,
    /// Why the node takes no new tasks: too many jobs failed there, or the node excludes itself.
    /// Null unless it is excluded. Uncordoning ends an exclusion, except one by the node itself.
    #[cfg_attr(feature = "schema", schema(required = true))]
    #[serde(default)]
    pub excluded: Option<Excluded>,
    /// Report of a cluster manager such as Kubernetes about the machine; null without a report.
    #[cfg_attr(feature = "schema", schema(required = true))]
    #[serde(default)]
    pub notice: Option<Notice>,
    /// Version of its assignment.
    pub generation: u64,
    pub capacity: Capacity,
    #[serde(with = "time::serde::rfc3339")]
    pub last_seen_at: OffsetDateTime,
    /// Measured speed relative to the typical node of its GPU kind. Absent if it is not known to
    /// deviate by 2 % or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<NodeSpeed>,
    /// Ordered by index.
    pub gpus: Vec<GpuView>,
    /// Number of tasks of all tenants that have not ended; PS shards hold no GPU. Absent in answers
    /// of older API servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u64>,
}

/// A GPU, or a CPU slot in place of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct GpuView {
    pub index: u32,
    pub kind: GpuKind,
    pub model: String,
    pub memory_bytes: u64,
    /// Null for a CPU slot, or if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_capability: Option<ComputeCapability>,
    /// Job that holds it; null if it is free.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub job: Option<Occupant>,
    /// Job that shares it with `job`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<Occupant>,
    /// Shown for tasks of the caller's tenant, and to administrators.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub task_id: Option<TaskId>,
}

/// Request for a one-time join token.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct NewJoinToken {
    /// Seconds from now, at most 604800 (a week). Default: an hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime_s: Option<u64>,
}

/// A new one-time join token. It is shown only here; the store keeps only its hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CreatedJoinToken {
    pub node: String,
    /// Value of the executor's `--join-token` for its first session.
    pub token: String,
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
}

/// The job that holds a GPU. Details of a job of another tenant are shown to administrators only.
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
