//! Tasks: lists for the API server, and state transitions for `plan::commit`, `report::record` and
//! `node::lost`.

use crate::error::StoreError;
use crate::event::{NewEvent, of_job};
use crate::int_convert::{unsigned, unsigned32};
use crate::packing;
use crate::service;
use muster_model::event::Event;
use muster_model::id::{JobId, TaskId, TenantId};
use muster_model::idle::Idleness;
use muster_model::pace::{Pace, Suspect};
use muster_model::packing::{Measured, Usage};
use muster_model::task::{Role, Task, TaskEvent, TaskState};
use sqlx::PgConnection;
use sqlx::types::Json;
use time::OffsetDateTime;
use uuid::Uuid;

/// A task with its node and times.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskRow {
    pub task: Task,
    pub node_name: String,
    pub created_at: OffsetDateTime,
    pub released_at: Option<OffsetDateTime>,
    /// The other job on its GPU.
    pub shared_with: Option<JobId>,
    /// Its job's speed beside that job, relative to its speed alone.
    pub rate_beside: Option<f64>,
    /// Measured GPU use.
    pub usage: Option<Usage>,
    /// Idleness of its program as last reported; `None` unless it runs.
    pub idle: Option<Idleness>,
}

/// Selection of a job's tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revisions {
    Current,
    All,
}

/// Returns tasks, newest revision first; in each revision PS shards before workers, ordered by
/// index.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn list(
    conn: &mut PgConnection,
    job: JobId,
    revisions: Revisions,
) -> Result<Vec<TaskRow>, StoreError> {
    let rows = sqlx::query!(
        r#"select t.id, t.job_id, t.revision, t.role, t.role_index, t.node_id, t.gpus,
                  t.state as "state: Json<TaskState>", t.address, t.created_at, t.released_at, n.name as node_name,
                  case when t.phase = 'running' then t.idle end as "idle: Json<Idleness>",
                  company.job_id as "shared_with?"
           from task t
           left join lateral muster_company(t.id) company on t.released_at is null
           join node n on n.id = t.node_id
           join job j on j.id = t.job_id
           where t.job_id = $1 and j.deleted_at is null and ($2 or t.revision = j.revision)
           order by t.revision desc, t.role, t.role_index"#,
        job.0,
        revisions == Revisions::All
    )
    .fetch_all(&mut *conn)
    .await?;
    let known = packing::measured(conn, job).await?;
    let tasks = rows.into_iter().map(|row| TaskRow {
        task: Task {
            id: row.id.into(),
            job_id: row.job_id.into(),
            revision: unsigned(row.revision),
            role: role(&row.role, row.role_index),
            node_id: row.node_id.into(),
            gpus: row.gpus.into_iter().map(unsigned32).collect(),
            state: row.state.0,
            address: row.address,
        },
        node_name: row.node_name,
        idle: row.idle.map(|idle| idle.0),
        created_at: row.created_at,
        released_at: row.released_at,
        shared_with: row.shared_with.map(JobId::from),
        rate_beside: row
            .shared_with
            .and_then(|other| known.as_ref()?.part_beside(other.into())),
        usage: known
            .as_ref()
            .filter(|known| known.revision == unsigned(row.revision) && row.released_at.is_none())
            .map(Measured::usage),
    });
    Ok(tasks.collect())
}

/// Pace report of a worker, and the suspicion of the newest round against it.
#[derive(Debug, Clone, PartialEq)]
pub struct RankPace {
    pub task_id: TaskId,
    pub pace: Pace,
    pub suspect: Option<Suspect>,
}

/// Returns the pace reports of a job's present workers, ordered by rank. Workers without a report
/// are omitted.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn paces(conn: &mut PgConnection, job: JobId) -> Result<Vec<RankPace>, StoreError> {
    let rows = sqlx::query!(
        r#"select t.id, t.pace as "pace!: Json<Pace>", j.suspects as "suspects: Json<Vec<Suspect>>"
           from task t
           join job j on j.id = t.job_id
           where t.job_id = $1 and j.deleted_at is null and t.revision = j.revision and t.released_at is null
             and t.role = 'worker' and t.pace is not null
           order by t.role_index"#,
        job.0
    )
    .fetch_all(conn)
    .await?;
    let paces = rows.into_iter().map(|row| {
        let task_id = row.id.into();
        let mut suspects = row.suspects.0.into_iter();
        RankPace {
            task_id,
            pace: row.pace.0,
            suspect: suspects.find(|suspect| suspect.task_id == task_id),
        }
    });
    Ok(paces.collect())
}

/// A task whose row the transaction has locked, and its tenant.
#[derive(Debug, Clone)]
pub(crate) struct LockedTask {
    pub tenant_id: TenantId,
    pub task: Task,
}

/// Result of several transitions.
#[derive(Debug, Default)]
pub(crate) struct Transitions {
    /// One event for each task whose state changed.
    pub events: Vec<NewEvent>,
    /// Changed tasks with their new states.
    pub changed: Vec<Task>,
    /// Tasks whose state does not allow the transition. They are unchanged.
    pub refused: Vec<TaskId>,
}

/// Applies each event to its task and writes the changed tasks in one guarded statement. GPUs that
/// a task no longer holds become free.
pub(crate) async fn transition(
    conn: &mut PgConnection,
    steps: Vec<(LockedTask, TaskEvent)>,
    now: OffsetDateTime,
) -> Result<Transitions, StoreError> {
    let mut done = Transitions::default();
    let mut before = Vec::new();
    for (
        LockedTask {
            tenant_id,
            mut task,
        },
        event,
    ) in steps
    {
        let old = task.state.clone();
        match old.clone().apply(event) {
            Ok(new) if new == old => {}
            Ok(new) => {
                task.state = new;
                let event = Event::TaskStateChanged {
                    task_id: task.id,
                    role: task.role,
                    node_id: task.node_id,
                    state: task.state.clone(),
                };
                let node_id = Some(task.node_id);
                done.events.push(NewEvent {
                    node_id,
                    ..of_job(now, tenant_id, task.job_id, event)
                });
                before.push(old.phase().to_owned());
                done.changed.push(task);
            }
            Err(_) => done.refused.push(task.id),
        }
    }
    write(conn, &before, &done.changed, now).await?;
    Ok(done)
}

async fn write(
    conn: &mut PgConnection,
    before: &[String],
    changed: &[Task],
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    if changed.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = changed.iter().map(|task| task.id.0).collect();
    let phases: Vec<String> = changed
        .iter()
        .map(|task| task.state.phase().to_owned())
        .collect();
    let states: Vec<Json<&TaskState>> = changed.iter().map(|task| Json(&task.state)).collect();
    let released: Vec<Uuid> = changed
        .iter()
        .filter(|task| !task.state.holds_gpus())
        .map(|task| task.id.0)
        .collect();
    if !released.is_empty() {
        service::add_released(conn, &released, now).await?;
    }
    let written = sqlx::query!(
        "update task
         set phase = given.phase, state = given.state,
             released_at = case when given.phase = 'released' then $5::timestamptz end
         from unnest($1::uuid[], $2::text[], $3::text[], $4::jsonb[]) as given (id, before, phase, state)
         where task.id = given.id and task.phase = given.before",
        &ids,
        before,
        &phases,
        &states as _,
        now
    )
    .execute(&mut *conn)
    .await?;
    assert_eq!(
        written.rows_affected(),
        ids.len() as u64,
        "the rows are locked, so their phases are those read"
    );
    if !released.is_empty() {
        sqlx::query!(
            "update allocation set released_at = $2 where task_id = any($1) and released_at is null",
            &released,
            now
        )
        .execute(conn)
        .await?;
    }
    Ok(())
}

pub(crate) fn role(kind: &str, index: i32) -> Role {
    let index = unsigned32(index);
    match kind {
        "worker" => Role::Worker { rank: index },
        "ps_shard" => Role::PsShard { index },
        other => unreachable!("a constraint keeps {other:?} out of the column"),
    }
}
