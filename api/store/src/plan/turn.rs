//! Suspension or continuation of a job at the boundary of a time slice.

use super::CommitRefusal;
use super::commit::CommitFailure;
use super::draft::JobDraft;
use super::start::{GpuSlot, admit, hold};
use crate::error::StoreError;
use crate::int_convert::signed32;
use crate::task::{self, LockedTask, Transitions};
use muster_model::id::{JobId, NodeId, TaskId};
use muster_model::plan::Action;
use muster_model::task::{Task, TaskEvent};
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

/// Writes a suspension or a continuation. It applies to all workers or to none: a gang changes
/// together.
pub(super) async fn write(
    conn: &mut PgConnection,
    draft: &JobDraft,
    action: &Action,
    now: OffsetDateTime,
) -> Result<Transitions, CommitFailure> {
    let orders = draft.held.iter().filter_map(|held| {
        let event = action.task_event(held.task.id, held.task.role)?;
        Some((held.clone(), event))
    });
    let orders: Vec<(LockedTask, TaskEvent)> = orders.collect();
    let workers: Vec<Task> = orders.iter().map(|(held, _)| held.task.clone()).collect();
    if let Action::Continue { beside, .. } = action {
        // The host is locked before the node: releasing transactions lock in this order.
        if let Some(host) = beside {
            stays(conn, draft, *host).await?;
        }
        let nodes: Vec<NodeId> = workers.iter().map(|task| task.node_id).collect();
        admit(conn, &nodes).await?;
    }
    let done = task::transition(conn, orders, now).await?;
    let changed: Vec<TaskId> = done.changed.iter().map(|task| task.id).collect();
    let out_of_turn = workers.iter().map(|task| task.id);
    let out_of_turn: Vec<TaskId> = out_of_turn.filter(|id| !changed.contains(id)).collect();
    if !out_of_turn.is_empty() || changed.is_empty() {
        let tasks = out_of_turn;
        return Err(CommitRefusal::NotInTurn { tasks }.into());
    }
    if let Action::Continue { beside, .. } = action {
        let held = workers
            .iter()
            .map(|task| (task.id, task.node_id, task.gpus.as_slice()));
        let lane = match beside {
            None => GpuSlot::Holder,
            Some(_) => GpuSlot::Guest,
        };
        hold(conn, draft, held, lane, now).await?;
    }
    Ok(done)
}

/// Locks the host's allocations. Refuses if the host does not hold all GPUs of the guest: a guest
/// without a host would use a GPU that counts as free.
async fn stays(
    conn: &mut PgConnection,
    draft: &JobDraft,
    host: JobId,
) -> Result<(), CommitFailure> {
    let gpus = draft.held.iter().flat_map(|held| {
        let node = held.task.node_id.0;
        let gpus = held.task.gpus.iter();
        gpus.map(move |gpu| (node, signed32(*gpu)))
    });
    let (nodes, gpus): (Vec<Uuid>, Vec<i32>) = gpus.unzip();
    let held = sqlx::query_scalar!(
        "select a.gpu_index from allocation a
         where a.job_id = $1 and a.lane = 0 and a.released_at is null
           and (a.node_id, a.gpu_index) in (select * from unnest($2::uuid[], $3::integer[]))
         for share",
        host.0,
        &nodes,
        &gpus
    )
    .fetch_all(conn)
    .await
    .map_err(StoreError::from)?;
    if held.len() != nodes.len() {
        return Err(CommitRefusal::HostGone { host }.into());
    }
    Ok(())
}
