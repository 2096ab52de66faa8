//! Nodes: sessions, held GPUs, loss and return.

mod intent;

use crate::checkpoint_request;
use crate::error::StoreError;
use crate::event::{self, of_node};
use crate::int_convert::{signed, unsigned, unsigned32};
use crate::notify::{self, NotifyChannel};
use crate::task::{self, LockedTask};
pub use intent::{set_drained, set_notice};
use muster_model::event::Event;
use muster_model::id::{JobId, NodeId, TaskId, TenantId};
use muster_model::node::{Capacity, Excluded, Node, NodeSpeed, NodeState, Notice};
use muster_model::task::{Outcome, Task, TaskEvent, TaskState};
use sqlx::PgConnection;
use sqlx::types::Json;
use std::collections::{BTreeMap, BTreeSet};
use time::OffsetDateTime;
use uuid::Uuid;

/// A node and the tasks that it holds.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeRow {
    pub node: Node,
    /// Held GPUs, ordered by index.
    pub held: Vec<HeldGpu>,
    /// Number of tasks of all tenants that have not ended, including tasks without a GPU.
    pub tasks: u64,
}

/// A GPU or CPU slot that a task holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldGpu {
    pub gpu_index: u32,
    /// Whether the task is the guest on a packed GPU.
    pub is_guest: bool,
    pub job_id: JobId,
    pub task_id: TaskId,
    /// `None` unless the tenant is in scope or the caller is an administrator.
    pub owner: Option<TaskOwner>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskOwner {
    pub tenant_id: TenantId,
    pub tenant_name: String,
    pub job_name: String,
}

pub(crate) struct NodeSqlRow {
    pub id: Uuid,
    pub name: String,
    pub state: String,
    pub drained: bool,
    pub excluded_at: Option<OffsetDateTime>,
    pub excluded_why: Option<String>,
    pub excluded_by_itself: bool,
    pub notice: Option<Json<Notice>>,
    pub capacity: Json<Capacity>,
    pub generation: i64,
    pub last_seen_at: OffsetDateTime,
    pub speed_percent: Option<i32>,
    pub speed_jobs: Option<i32>,
}

impl From<NodeSqlRow> for Node {
    fn from(row: NodeSqlRow) -> Self {
        Self {
            id: row.id.into(),
            name: row.name,
            state: match row.state.as_str() {
                "up" => NodeState::Up,
                "lost" => NodeState::Lost,
                other => unreachable!("a constraint keeps {other:?} out of the column"),
            },
            drained: row.drained,
            excluded: row.excluded_at.map(|at| Excluded {
                at,
                why: row.excluded_why.unwrap_or_default(),
                by_itself: row.excluded_by_itself,
            }),
            notice: row.notice.map(|notice| notice.0),
            capacity: row.capacity.0,
            generation: unsigned(row.generation),
            last_seen_at: row.last_seen_at,
            speed: speed(row.speed_percent, row.speed_jobs),
        }
    }
}

/// Speed of its columns; a constraint keeps the percentage in range.
fn speed(percent: Option<i32>, jobs: Option<i32>) -> Option<NodeSpeed> {
    let percent = percent.and_then(|percent| u16::try_from(percent).ok())?;
    Some(NodeSpeed {
        percent,
        jobs: unsigned32(jobs.unwrap_or(0)),
    })
}

/// Registers a session of a node. The first session under a name creates the node with `new_id`. A
/// lost node is up again, without its lost tasks. Wakes the next round if there is more capacity
/// than before.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn hello(
    conn: &mut PgConnection,
    new_id: NodeId,
    name: &str,
    capacity: &Capacity,
    now: OffsetDateTime,
) -> Result<Node, StoreError> {
    // If two sessions of a new name race, the insert decides which one creates the node. The lock
    // then shows the earlier state.
    let made = sqlx::query!(
        "insert into node (id, name, state, capacity, first_seen_at, last_seen_at) values ($1, $2, $3, $4, $5, $5)
         on conflict (name) do nothing",
        new_id.0,
        name,
        NodeState::Up.as_str(),
        Json(capacity) as _,
        now
    )
    .execute(&mut *conn)
    .await?
    .rows_affected()
        == 1;
    let row = sqlx::query_as!(
        NodeSqlRow,
        r#"select id, name, state, drained, excluded_at, excluded_why, excluded_by_itself, notice as "notice: Json<Notice>", capacity as "capacity: Json<Capacity>", generation, last_seen_at, speed_percent, speed_jobs
           from node where name = $1 for no key update"#,
        name
    )
    .fetch_one(&mut *conn)
    .await?;
    let mut node = Node::from(row);
    let returned = node.state == NodeState::Lost;
    let resized = node.capacity != *capacity;
    node.state = NodeState::Up;
    node.capacity = capacity.clone();
    node.last_seen_at = now;
    sqlx::query!(
        "update node set state = $2, capacity = $3, last_seen_at = $4, removed_at = null where id = $1",
        node.id.0,
        node.state.as_str(),
        Json(capacity) as _,
        node.last_seen_at
    )
    .execute(&mut *conn)
    .await?;
    if made || returned {
        let event = Event::NodeStateChanged {
            name: node.name.clone(),
            state: node.state,
        };
        event::append(conn, &[of_node(now, node.id, event)]).await?;
    }
    if made || returned || resized {
        notify::send(conn, &[NotifyChannel::Rounds, NotifyChannel::Events]).await?;
    }
    Ok(node)
}

/// Whether the node has unreleased tasks of an executor with another identity. In this case the
/// executor has lost its data folder, or is a second one of the same name. It must not be admitted
/// before these tasks count as lost, or it would start them a second time. The node's row stays
/// locked, so no task is added until the transaction ends.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn is_held_by_another(
    conn: &mut PgConnection,
    name: &str,
    identity: &str,
) -> Result<bool, StoreError> {
    let known = sqlx::query!(
        "select id, identity from node where name = $1 for no key update",
        name
    )
    .fetch_optional(&mut *conn)
    .await?;
    let Some(known) = known.filter(|known| {
        let other = known.identity.as_deref();
        !identity.is_empty() && other.is_some_and(|other| other != identity)
    }) else {
        return Ok(false);
    };
    let holds = sqlx::query_scalar!(
        r#"select exists (select 1 from task where node_id = $1 and released_at is null) as "holds!""#,
        known.id
    )
    .fetch_one(conn)
    .await?;
    Ok(holds)
}

/// Stores the identity of the node's executor. An empty identity changes nothing.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn identify(
    conn: &mut PgConnection,
    id: NodeId,
    identity: &str,
) -> Result<(), StoreError> {
    if identity.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "update node set identity = $2 where id = $1 and identity is distinct from $2",
        id.0,
        identity
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Result of a batch of heartbeats.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HeartbeatBatchResult {
    /// Nodes whose heartbeat was written.
    pub up: BTreeSet<NodeId>,
    /// Nodes whose rows another transaction has locked; nothing was written for them.
    pub locked: BTreeSet<NodeId>,
}

/// Writes heartbeats of these nodes. Locked rows are skipped, so that a long lock on one node does
/// not delay the others. A node that is neither `up` nor `locked` counts as lost or does not exist,
/// and must open a new session.
///
/// `last_seen_at` follows the scheduler's clock even if that is set back: a change of the value
/// signals the heartbeat.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn touch(
    conn: &mut PgConnection,
    ids: &BTreeSet<NodeId>,
    now: OffsetDateTime,
) -> Result<HeartbeatBatchResult, StoreError> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let rows = sqlx::query!(
        r#"with free as materialized (select id, state from node where id = any($1) for no key update skip locked),
                up as (update node n set last_seen_at = $2 from free
                       where n.id = free.id and free.state = 'up' returning n.id)
           select n.id, free.id is null as "locked!", up.id is not null as "up!"
           from node n left join free on free.id = n.id left join up on up.id = n.id where n.id = any($1)"#,
        &ids,
        now
    )
    .fetch_all(conn)
    .await?;
    let mut touched = HeartbeatBatchResult::default();
    for row in rows {
        let id = NodeId(row.id);
        match (row.up, row.locked) {
            (true, _) => touched.up.insert(id),
            (_, true) => touched.locked.insert(id),
            _ => false,
        };
    }
    Ok(touched)
}

/// Returns the generation of the node's assignment; 0 for an unknown node.
///
/// # Errors
/// [`StoreError::Statement`].
pub(crate) async fn generation(conn: &mut PgConnection, id: NodeId) -> Result<u64, StoreError> {
    let found = sqlx::query_scalar!("select generation from node where id = $1", id.0)
        .fetch_optional(conn)
        .await?;
    Ok(found.map_or(0, unsigned))
}

/// Returns the generation of the assignment of the node of this name; `None` for an unknown node.
pub(crate) async fn generation_of(
    conn: &mut PgConnection,
    name: &str,
) -> Result<Option<u64>, StoreError> {
    let found = sqlx::query_scalar!("select generation from node where name = $1", name)
        .fetch_optional(conn)
        .await?;
    Ok(found.map(unsigned))
}

/// Returns the generation of each node's assignment.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn generations(conn: &mut PgConnection) -> Result<BTreeMap<NodeId, u64>, StoreError> {
    let all = sqlx::query!("select id, generation from node")
        .fetch_all(conn)
        .await?;
    let all = all.into_iter();
    Ok(all
        .map(|row| (NodeId(row.id), unsigned(row.generation)))
        .collect())
}

/// A node that is up, with its newest heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeHeartbeat {
    pub id: NodeId,
    pub last_seen_at: OffsetDateTime,
}

/// Returns every node that is up. Each heartbeat changes its `last_seen_at`.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn heard(conn: &mut PgConnection) -> Result<Vec<NodeHeartbeat>, StoreError> {
    let rows = sqlx::query!("select id, last_seen_at from node where state = 'up' order by id")
        .fetch_all(conn)
        .await?;
    let heard = rows.into_iter().map(|row| NodeHeartbeat {
        id: NodeId(row.id),
        last_seen_at: row.last_seen_at,
    });
    Ok(heard.collect())
}

/// Marks the `silent` nodes as lost, and releases their tasks with `Outcome::NodeLost`. Returns the
/// nodes that this call has marked. A node with a newer heartbeat than stated is not changed.
///
/// The caller ensures that lease and grace have expired since that heartbeat, so the node has
/// stopped its tasks by then.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn lost(
    conn: &mut PgConnection,
    silent: &[NodeHeartbeat],
    now: OffsetDateTime,
) -> Result<Vec<Node>, StoreError> {
    if silent.is_empty() {
        return Ok(Vec::new());
    }
    let candidates: Vec<Uuid> = silent.iter().map(|one| one.id.0).collect();
    let last_seen_at: Vec<OffsetDateTime> = silent.iter().map(|one| one.last_seen_at).collect();
    let held = held_by(conn, &candidates).await?;
    let held = held.iter().map(|held| &held.task);
    let asked = checkpoint_request::unanswered(conn, held).await?;
    bump_with(conn, &asked, &candidates).await?;
    let rows = sqlx::query_as!(
        NodeSqlRow,
        r#"update node set state = $3, generation = generation + 1
           where state = $4
             and (id, last_seen_at) in (select * from unnest($1::uuid[], $2::timestamptz[]))
             and id in (select id from node where id = any($1) order by id for no key update)
           returning id, name, state, drained, excluded_at, excluded_why, excluded_by_itself, notice as "notice: Json<Notice>", capacity as "capacity: Json<Capacity>", generation, last_seen_at, speed_percent, speed_jobs"#,
        &candidates,
        &last_seen_at,
        NodeState::Lost.as_str(),
        NodeState::Up.as_str()
    )
    .fetch_all(&mut *conn)
    .await?;
    let nodes: Vec<Node> = rows.into_iter().map(Node::from).collect();
    let ids: Vec<Uuid> = nodes.iter().map(|node| node.id.0).collect();
    // Read again, because a start may have committed before the update above took its locks. No
    // start can commit after it.
    let tasks = held_by(conn, &ids).await?;
    let steps = tasks
        .into_iter()
        .map(|task| {
            (
                task,
                TaskEvent::Gone {
                    outcome: Outcome::NodeLost,
                },
            )
        })
        .collect();
    let mut events: Vec<_> = nodes
        .iter()
        .map(|node| {
            of_node(
                now,
                node.id,
                Event::NodeStateChanged {
                    name: node.name.clone(),
                    state: node.state,
                },
            )
        })
        .collect();
    events.extend(task::transition(conn, steps, now).await?.events);
    event::append(conn, &events).await?;
    if !nodes.is_empty() {
        notify::send(
            conn,
            &[
                NotifyChannel::Rounds,
                NotifyChannel::Assignments,
                NotifyChannel::Events,
            ],
        )
        .await?;
    }
    Ok(nodes)
}

/// Locks and returns unreleased tasks of the nodes, in order of id.
async fn held_by(conn: &mut PgConnection, nodes: &[Uuid]) -> Result<Vec<LockedTask>, StoreError> {
    let rows = sqlx::query!(
        r#"select id, tenant_id, job_id, revision, role, role_index, node_id, gpus, state as "state: Json<TaskState>", address
           from task where node_id = any($1) and released_at is null order by id for no key update"#,
        nodes
    )
    .fetch_all(conn)
    .await?;
    let tasks = rows.into_iter().map(|row| LockedTask {
        tenant_id: row.tenant_id.into(),
        task: Task {
            id: row.id.into(),
            job_id: row.job_id.into(),
            revision: unsigned(row.revision),
            role: task::role(&row.role, row.role_index),
            node_id: row.node_id.into(),
            gpus: row.gpus.into_iter().map(unsigned32).collect(),
            state: row.state.0,
            address: row.address,
        },
    });
    Ok(tasks.collect())
}

/// Returns all nodes by name, with their held GPUs.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn list(conn: &mut PgConnection) -> Result<Vec<NodeRow>, StoreError> {
    let rows = sqlx::query_as!(
        NodeSqlRow,
        r#"select id, name, state, drained, excluded_at, excluded_why, excluded_by_itself, notice as "notice: Json<Notice>", capacity as "capacity: Json<Capacity>", generation, last_seen_at, speed_percent, speed_jobs
           from node where removed_at is null order by name"#
    )
    .fetch_all(&mut *conn)
    .await?;
    let mut held = held_gpus(&mut *conn, None).await?;
    let tasks = tasks(conn, None).await?;
    let nodes = rows.into_iter().map(|row| {
        let node = Node::from(row);
        let held = held.remove(&node.id).unwrap_or_default();
        let tasks = tasks.get(&node.id).copied().unwrap_or(0);
        NodeRow { node, held, tasks }
    });
    Ok(nodes.collect())
}

/// Returns the node of this name with its held GPUs; `None` if there is none.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn get(conn: &mut PgConnection, name: &str) -> Result<Option<NodeRow>, StoreError> {
    let row = sqlx::query_as!(
        NodeSqlRow,
        r#"select id, name, state, drained, excluded_at, excluded_why, excluded_by_itself, notice as "notice: Json<Notice>", capacity as "capacity: Json<Capacity>", generation, last_seen_at, speed_percent, speed_jobs
           from node where name = $1 and removed_at is null"#,
        name
    )
    .fetch_optional(&mut *conn)
    .await?;
    let Some(node) = row.map(Node::from) else {
        return Ok(None);
    };
    let held = held_gpus(&mut *conn, Some(node.id))
        .await?
        .remove(&node.id)
        .unwrap_or_default();
    let tasks = tasks(conn, Some(node.id)).await?;
    let tasks = tasks.get(&node.id).copied().unwrap_or(0);
    Ok(Some(NodeRow { node, held, tasks }))
}

/// Returns the number of tasks that have not ended, for each node with any.
async fn tasks(
    conn: &mut PgConnection,
    node: Option<NodeId>,
) -> Result<BTreeMap<NodeId, u64>, StoreError> {
    let rows = sqlx::query!(
        r#"select node_id as "node_id!", tasks as "tasks!"
           from muster_tasks_of_nodes() where $1::uuid is null or node_id = $1"#,
        node.map(Uuid::from)
    )
    .fetch_all(conn)
    .await?;
    let tasks = rows
        .into_iter()
        .map(|row| (row.node_id.into(), unsigned(row.tasks)));
    Ok(tasks.collect())
}

async fn held_gpus(
    conn: &mut PgConnection,
    node: Option<NodeId>,
) -> Result<BTreeMap<NodeId, Vec<HeldGpu>>, StoreError> {
    let rows = sqlx::query!(
        r#"select node_id as "node_id!", gpu_index as "gpu_index!", task_id as "task_id!", job_id as "job_id!",
                  tenant_id, tenant_name, job_name, lane > 0 as "is_guest!"
           from muster_held_gpus() where $1::uuid is null or node_id = $1 order by node_id, gpu_index, lane"#,
        node.map(Uuid::from)
    )
    .fetch_all(conn)
    .await?;
    let mut held: BTreeMap<NodeId, Vec<HeldGpu>> = BTreeMap::new();
    for row in rows {
        let owner = match (row.tenant_id, row.tenant_name, row.job_name) {
            (Some(tenant_id), Some(tenant_name), Some(job_name)) => Some(TaskOwner {
                tenant_id: tenant_id.into(),
                tenant_name,
                job_name,
            }),
            _ => None,
        };
        held.entry(row.node_id.into()).or_default().push(HeldGpu {
            gpu_index: unsigned32(row.gpu_index),
            is_guest: row.is_guest,
            job_id: row.job_id.into(),
            task_id: row.task_id.into(),
            owner,
        });
    }
    Ok(held)
}

/// Does the same as [`bump`] in a transaction that locks `more` nodes afterwards: all are locked in
/// order of id.
async fn bump_with(
    conn: &mut PgConnection,
    nodes: &BTreeSet<NodeId>,
    more: &[Uuid],
) -> Result<(), StoreError> {
    if nodes.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = nodes.iter().map(|node| node.0).collect();
    sqlx::query!(
        "select id from node where id = any($1) or id = any($2) order by id for no key update",
        &ids,
        more
    )
    .fetch_all(&mut *conn)
    .await?;
    bump(conn, nodes).await
}

/// Raises the generation of the nodes, so that their sessions send the new assignments.
pub(crate) async fn bump(
    conn: &mut PgConnection,
    nodes: &BTreeSet<NodeId>,
) -> Result<(), StoreError> {
    if nodes.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = nodes.iter().map(|node| node.0).collect();
    sqlx::query!(
        "update node set generation = generation + $2
         where id in (select id from node where id = any($1) order by id for no key update)",
        &ids,
        signed(1)
    )
    .execute(&mut *conn)
    .await?;
    notify::send(conn, &[NotifyChannel::Assignments]).await
}
