//! Ids that contain the numbers of a scenario's nodes, tenants and jobs.

use muster_model::id::{JobId, NodeId, TenantId};
use uuid::Uuid;

/// First id of the nodes.
const NODES: u128 = 0x1000;

pub(super) fn node_id(number: u128) -> NodeId {
    NodeId(Uuid::from_u128(NODES + number))
}

/// Number of a node in the scenario.
pub(crate) fn node_number(id: NodeId) -> u32 {
    u32::try_from(id.0.as_u128() - NODES).unwrap_or(u32::MAX)
}

pub(super) fn tenant_id(number: u128) -> TenantId {
    TenantId(Uuid::from_u128(0x2000 + number))
}

pub(super) fn job_id(number: usize) -> JobId {
    JobId(Uuid::from_u128(0x3000_0000 + ((number as u128) << 64)))
}

/// Number of a job in the scenario.
pub(super) fn job_number(id: JobId) -> usize {
    usize::try_from(id.0.as_u128() >> 64).unwrap_or(usize::MAX)
}
