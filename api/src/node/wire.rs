//! Conversion of rows to response types.

use crate::auth::Caller;
use crate::problem::ApiError;
use crate::state::ApiState;
use muster_model::view::{GpuView, NodeView, Occupant};
use muster_store::node::{HeldGpu, NodeRow};
use muster_store::pool::Transaction;
use muster_store::tenant_scope;

pub fn node(row: NodeRow) -> NodeView {
    let NodeRow { node, held, tasks } = row;
    let gpus = node.gpus().into_iter().map(|gpu| {
        let mut there = held.iter().filter(|held| held.gpu_index == gpu.index);
        let holder = there.clone().find(|held| !held.is_guest);
        let guest = there.find(|held| held.is_guest);
        GpuView {
            index: gpu.index,
            kind: gpu.kind,
            model: gpu.model,
            memory_bytes: gpu.memory_bytes,
            compute_capability: gpu.compute_capability,
            job: holder.map(occupant),
            guest: guest.map(occupant),
            task_id: holder.and_then(|held| held.owner.as_ref().map(|_| held.task_id)),
        }
    });
    let gpus = gpus.collect();
    NodeView {
        id: node.id,
        gpus,
        tasks: Some(tasks),
        name: node.name,
        state: node.state,
        drained: node.drained,
        excluded: node.excluded,
        notice: node.notice,
        generation: node.generation,
        capacity: node.capacity,
        last_seen_at: node.last_seen_at,
        speed: node.speed,
    }
}

/// Begins a transaction that shows administrators the jobs of all tenants on GPUs.
pub async fn begin(app: &ApiState, caller: &Caller) -> Result<Transaction, ApiError> {
    let mut tx = app.begin(caller).await?;
    if caller.is_admin() {
        tenant_scope::admin(&mut tx).await?;
    }
    Ok(tx)
}

fn occupant(held: &HeldGpu) -> Occupant {
    Occupant {
        id: held.owner.as_ref().map(|_| held.job_id),
        name: held.owner.as_ref().map(|owner| owner.job_name.clone()),
        tenant: held.owner.as_ref().map(|owner| owner.tenant_name.clone()),
    }
}
