//! Writes a new revision of a job: its tasks and the GPUs that they hold.

use super::CommitRefusal;
use super::commit::CommitFailure;
use super::draft::{From, JobDraft, RevisionStart};
use crate::error::StoreError;
use crate::event::{NewEvent, of_job};
use crate::int_convert::{signed, signed32};
use crate::task::role;
use muster_model::event::Event;
use muster_model::id::{NodeId, TaskId};
use muster_model::task::{Role, TaskState};
use sqlx::PgConnection;
use sqlx::types::Json;
use std::collections::{BTreeMap, BTreeSet};
use time::OffsetDateTime;
use uuid::Uuid;

pub(super) struct StartEffects {
    pub nodes: Vec<NodeId>,
    pub placed: Option<NewEvent>,
    pub tasks: Vec<NewEvent>,
}

pub(super) async fn write(
    conn: &mut PgConnection,
    draft: &JobDraft,
    start: RevisionStart,
    now: OffsetDateTime,
) -> Result<StartEffects, CommitFailure> {
    let nodes: Vec<NodeId> = start.tasks.iter().map(|task| task.planned.node).collect();
    let mut names = admit(conn, &nodes).await?;
    let kept = kept(conn, draft, &start).await?;
    tasks(conn, draft, &start, now).await?;
    let held = start
        .tasks
        .iter()
        .map(|task| (task.id, task.planned.node, task.planned.gpus.as_slice()));
    hold(conn, draft, held, GpuSlot::Holder, now).await?;
    let (mut workers, mut ps_shards) = (0, 0);
    let new = start.tasks.iter().map(|task| task.planned.role);
    for role in new.chain(kept.iter().map(|(role, ..)| *role)) {
        match role {
            Role::Worker { .. } => workers += 1,
            Role::PsShard { .. } => ps_shards += 1,
        }
    }
    // Remaining tasks must learn of the new ones.
    names.extend(kept.iter().map(|(_, node, name)| (*node, name.clone())));
    let placed = Event::JobPlaced {
        revision: draft.revision,
        workers,
        ps_shards,
        nodes: names.values().cloned().collect(),
        why: start.why,
    };
    let tasks = start.tasks.iter().map(|task| {
        let event = Event::TaskStateChanged {
            task_id: task.id,
            role: task.planned.role,
            node_id: task.planned.node,
            state: TaskState::Assigned,
        };
        NewEvent {
            node_id: Some(task.planned.node),
            ..of_job(now, draft.tenant_id, draft.id, event)
        }
    });
    Ok(StartEffects {
        nodes: names.into_keys().map(NodeId).collect(),
        placed: Some(of_job(now, draft.tenant_id, draft.id, placed)),
        tasks: tasks.collect(),
    })
}

/// Moves the remaining tasks to the new revision, and returns their roles and nodes.
async fn kept(
    conn: &mut PgConnection,
    draft: &JobDraft,
    start: &RevisionStart,
) -> Result<Vec<(Role, Uuid, String)>, CommitFailure> {
    let From::Before { leave } = &start.from else {
        return Ok(Vec::new());
    };
    let before = draft.revision - 1;
    let leave: Vec<Uuid> = leave.iter().map(|task| task.0).collect();
    let known = sqlx::query_scalar!(
        "select id from task where job_id = $1 and revision = $2 and id = any($3)",
        draft.id.0,
        signed(before),
        &leave
    )
    .fetch_all(&mut *conn)
    .await
    .map_err(StoreError::from)?;
    if let Some(task) = leave.iter().find(|task| !known.contains(task)) {
        return Err(CommitRefusal::NoSuchTask {
            task: (*task).into(),
        }
        .into());
    }
    let rows = sqlx::query!(
        r#"update task set revision = $3 from node
           where task.job_id = $1 and task.revision = $2 and not task.id = any($4) and node.id = task.node_id
           returning task.role, task.role_index, node.id, node.name"#,
        draft.id.0,
        signed(before),
        signed(draft.revision),
        &leave
    )
    .fetch_all(conn)
    .await
    .map_err(StoreError::from)?;
    let kept = rows
        .into_iter()
        .map(|row| (role(&row.role, row.role_index), row.id, row.name));
    Ok(kept.collect())
}

/// A node, and whether it takes tasks.
pub(super) struct TargetNode {
    id: Uuid,
    name: String,
    open: bool,
}

/// Locks and returns the nodes that exist. Until the transaction ends none of them can be marked as
/// lost, which would release its tasks.
pub(super) async fn keep(
    conn: &mut PgConnection,
    nodes: impl Iterator<Item = NodeId>,
) -> Result<Vec<TargetNode>, StoreError> {
    let ids: BTreeSet<Uuid> = nodes.map(|node| node.0).collect();
    let ids: Vec<Uuid> = ids.into_iter().collect();
    let rows = sqlx::query_as!(
        TargetNode,
        r#"select id, name,
                  state = 'up' and not drained and excluded_at is null and coalesce(notice ->> 'closed', 'open') = 'open' as "open!"
           from node where id = any($1) order by id for no key update"#,
        &ids
    )
    .fetch_all(conn)
    .await?;
    Ok(rows)
}

/// Returns the names of the nodes. Refuses if one of them is missing or takes no tasks.
pub(super) async fn admit(
    conn: &mut PgConnection,
    nodes: &[NodeId],
) -> Result<BTreeMap<Uuid, String>, CommitFailure> {
    let wanted: BTreeSet<&NodeId> = nodes.iter().collect();
    let rows = keep(conn, nodes.iter().copied()).await?;
    if rows.len() < wanted.len() {
        return Err(CommitRefusal::NoSuchNode.into());
    }
    let closed: Vec<String> = rows
        .iter()
        .filter(|row| !row.open)
        .map(|row| row.name.clone())
        .collect();
    if !closed.is_empty() {
        return Err(CommitRefusal::NodesUnavailable { names: closed }.into());
    }
    Ok(rows.into_iter().map(|row| (row.id, row.name)).collect())
}

async fn tasks(
    conn: &mut PgConnection,
    draft: &JobDraft,
    start: &RevisionStart,
    now: OffsetDateTime,
) -> Result<(), CommitFailure> {
    let ids: Vec<Uuid> = start.tasks.iter().map(|task| task.id.0).collect();
    let roles: Vec<String> = start
        .tasks
        .iter()
        .map(|task| task.planned.role.kind().to_owned())
        .collect();
    let indices: Vec<i32> = start
        .tasks
        .iter()
        .map(|task| signed32(task.planned.role.index()))
        .collect();
    let nodes: Vec<Uuid> = start.tasks.iter().map(|task| task.planned.node.0).collect();
    // SQL has no arrays of arrays with different lengths.
    let gpus: Vec<Json<&Vec<u32>>> = start
        .tasks
        .iter()
        .map(|task| Json(&task.planned.gpus))
        .collect();
    let done = sqlx::query!(
        "insert into task (id, tenant_id, job_id, revision, role, role_index, node_id, gpus, phase, state, created_at)
         select id, $1, $2, $3, role, role_index, node_id,
                array(select value::integer from jsonb_array_elements_text(gpus) with ordinality as e (value, place) order by place),
                $9, $10, $11
         from unnest($4::uuid[], $5::text[], $6::integer[], $7::uuid[], $8::jsonb[]) as given (id, role, role_index, node_id, gpus)
         on conflict do nothing",
        draft.tenant_id.0,
        draft.id.0,
        signed(draft.revision),
        &ids,
        &roles,
        &indices,
        &nodes,
        &gpus as _,
        TaskState::Assigned.phase(),
        Json(TaskState::Assigned) as _,
        now
    )
    .execute(conn)
    .await
    .map_err(StoreError::from)?;
    if done.rows_affected() != ids.len() as u64 {
        return Err(CommitRefusal::GpuHeld.into());
    }
    Ok(())
}

/// A place on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GpuSlot {
    Holder,
    /// Beside the holder.
    Guest,
}

/// Allocates GPUs. The partial unique index prevents a second holder of a lane, even if the plan is
/// wrong.
pub(super) async fn hold(
    conn: &mut PgConnection,
    draft: &JobDraft,
    held: impl Iterator<Item = (TaskId, NodeId, &[u32])>,
    lane: GpuSlot,
    now: OffsetDateTime,
) -> Result<(), CommitFailure> {
    let (mut tasks, mut nodes, mut gpus) = (Vec::new(), Vec::new(), Vec::new());
    for (task, node, its) in held {
        for gpu in its {
            tasks.push(task.0);
            nodes.push(node.0);
            gpus.push(signed32(*gpu));
        }
    }
    let done = sqlx::query!(
        "insert into allocation (task_id, gpu_index, node_id, job_id, tenant_id, allocated_at, lane)
         select task_id, gpu_index, node_id, $4, $5, $6, $7
         from unnest($1::uuid[], $2::integer[], $3::uuid[]) as given (task_id, gpu_index, node_id)
         on conflict do nothing",
        &tasks,
        &gpus,
        &nodes,
        draft.id.0,
        draft.tenant_id.0,
        now,
        match lane {
            GpuSlot::Holder => 0_i16,
            GpuSlot::Guest => 1,
        }
    )
    .execute(conn)
    .await
    .map_err(StoreError::from)?;
    if done.rows_affected() != tasks.len() as u64 {
        return Err(CommitRefusal::GpuHeld.into());
    }
    Ok(())
}
