//! Converts reports of nodes to facts: which tasks run or have ended, their reported lines and
//! their logs. Decisions are left to the next round, which is woken if a fact needs one.
//!
//! Everything may be reported twice. Events are identified by task and line number, logs by task
//! and offset, states by their transitions. Lines of a task of an older revision do not change its
//! job; its log is stored.

mod facts;
mod statuses;
mod target;
mod volume;

use crate::error::StoreError;
use crate::event::{self, NewEvent, of_job};
use crate::int_convert::{signed, unsigned, unsigned32};
use crate::log::{self, LogAppendOutcome};
use crate::node;
use crate::notify::{self, NotifyChannel};
use crate::packing;
use crate::progress::unix_ms;
use crate::task::{LockedTask, role};
use facts::facts;
use muster_model::assignment::{Observed, TaskReport};
use muster_model::event::Event;
use muster_model::id::{NodeId, TaskId};
use muster_model::idle::Idleness;
use muster_model::pace::Pace;
use muster_model::packing::Company;
use muster_model::spec::Target;
use muster_model::task::{Task, TaskState};
use sqlx::PgConnection;
use sqlx::types::Json;
use statuses::statuses;
use std::collections::{BTreeMap, BTreeSet};
use time::OffsetDateTime;
use uuid::Uuid;
use volume::Volumes;

/// Changes that a node observed since its last report; everything at the start of a session.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeReport {
    /// Task, its revision, and its state on the node.
    pub statuses: Vec<(TaskId, u64, Observed)>,
    pub events: Vec<TaskEvents>,
    /// Task, offset of the first byte, and bytes.
    pub logs: Vec<(TaskId, u64, Vec<u8>)>,
}

/// Consecutive lines of a task's event file.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskEvents {
    pub task_id: TaskId,
    pub revision: u64,
    /// Number of the first line, from 0.
    pub first_seq: u64,
    /// Lines with the time at which the node read each.
    pub events: Vec<(OffsetDateTime, TaskReport)>,
}

/// Result of a report.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReportOutcome {
    /// Number of new lines that were recorded.
    pub recorded: u64,
    /// Number of lines of tasks whose job has a newer revision. They are not recorded.
    pub stale: u64,
    /// Tasks that do not belong to this node.
    pub unknown: BTreeSet<TaskId>,
    /// Whether a round must act.
    pub round_due: bool,
}

/// A locked task of the report, and the state of its job.
struct ReportedTask {
    locked: LockedTask,
    job_revision: u64,
    job_turn: u64,
    /// Number of consecutive placement rejections of the job's growth; 0 unless the job runs.
    refused_growth: u32,
    events_seen: u64,
    log_end: u64,
    pace: Option<Pace>,
    idle: Option<Idleness>,
    /// The other job on its GPU.
    company: Option<Company>,
    /// Target at which the program of its job ends.
    target: Option<Target>,
}

impl ReportedTask {
    /// Whether the task belongs to the newest revision. A task that remains in a resize reports the
    /// revision of its start.
    fn is_current(&self, reported: u64) -> bool {
        self.locked.task.revision == self.job_revision && reported <= self.job_revision
    }
}

/// Sum of a report's effects, written at its end.
struct ReportEffects {
    /// Time of recording. States use it instead of the node's clock.
    now: OffsetDateTime,
    outcome: ReportOutcome,
    events: Vec<NewEvent>,
    /// Nodes whose assignment changed.
    touched: BTreeSet<NodeId>,
    sampled: bool,
    volumes: Volumes,
}

/// Records a report of `node`. The report may be acknowledged after the transaction's commit.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn record(
    conn: &mut PgConnection,
    node: NodeId,
    report: &NodeReport,
    now: OffsetDateTime,
) -> Result<ReportOutcome, StoreError> {
    let mut known = lock(conn, node, report).await?;
    let mut sum = ReportEffects {
        now,
        outcome: ReportOutcome::default(),
        events: Vec::new(),
        touched: BTreeSet::new(),
        sampled: false,
        volumes: Volumes::default(),
    };
    // Lines come before states: an ended task has no further lines.
    for run in &report.events {
        match known.get_mut(&run.task_id) {
            Some(task) => lines(conn, task, run, now, &mut sum).await?,
            None => drop(sum.outcome.unknown.insert(run.task_id)),
        }
    }
    logs(conn, &mut known, report, now, &mut sum).await?;
    statuses(conn, &known, report, now, &mut sum).await?;
    std::mem::take(&mut sum.volumes).write(conn).await?;
    event::append(conn, &sum.events).await?;
    node::bump(conn, &sum.touched).await?;
    let mut woken = Vec::new();
    if !sum.events.is_empty() || sum.sampled {
        woken.push(NotifyChannel::Events);
    }
    if sum.outcome.round_due {
        woken.push(NotifyChannel::Rounds);
    }
    if !woken.is_empty() {
        notify::send(conn, &woken).await?;
    }
    Ok(sum.outcome)
}

/// Locks the jobs and then the tasks, each in order of id, like all writers.
async fn lock(
    conn: &mut PgConnection,
    node: NodeId,
    report: &NodeReport,
) -> Result<BTreeMap<TaskId, ReportedTask>, StoreError> {
    let named = report.statuses.iter().map(|(id, ..)| *id);
    let named = named
        .chain(report.events.iter().map(|run| run.task_id))
        .chain(report.logs.iter().map(|(id, ..)| *id));
    let ids: Vec<Uuid> = named
        .collect::<BTreeSet<_>>()
        .into_iter()
        .map(Uuid::from)
        .collect();
    if ids.is_empty() {
        return Ok(BTreeMap::new());
    }
    let jobs = sqlx::query!(
        r#"select id, revision, turn, case when phase = 'running' then put_off else 0 end as "refused_growth!",
                  case when jsonb_typeof(spec -> 'command') = 'object' then spec #> '{stop,target}' end as "target: Json<Target>"
           from job
           where id in (select job_id from task where id = any($1) and node_id = $2)
           order by id for no key update"#,
        &ids,
        node.0
    )
    .fetch_all(&mut *conn)
    .await?;
    let jobs: BTreeMap<Uuid, _> = jobs.into_iter().map(|row| (row.id, row)).collect();
    let rows = sqlx::query!(
        r#"select t.id, t.tenant_id, t.job_id, t.revision, t.role, t.role_index, t.node_id, t.gpus, t.state as "state: Json<TaskState>",
                  t.address, t.events_seen, t.log_end, t.pace as "pace: Json<Pace>", t.idle as "idle: Json<Idleness>",
                  company.job_id as "beside?", company.since as "since?"
           from task t left join lateral muster_company(t.id) company on true
           where t.id = any($1) and t.node_id = $2 order by t.id for no key update of t"#,
        &ids,
        node.0
    )
    .fetch_all(conn)
    .await?;
    let known = rows.into_iter().map(|row| {
        let task = Task {
            id: row.id.into(),
            job_id: row.job_id.into(),
            revision: unsigned(row.revision),
            role: role(&row.role, row.role_index),
            node_id: row.node_id.into(),
            gpus: row.gpus.into_iter().map(unsigned32).collect(),
            state: row.state.0,
            address: row.address,
        };
        let known = ReportedTask {
            job_revision: unsigned(jobs[&row.job_id].revision),
            job_turn: unsigned(jobs[&row.job_id].turn),
            refused_growth: unsigned32(jobs[&row.job_id].refused_growth),
            target: jobs[&row.job_id]
                .target
                .as_ref()
                .map(|target| target.0.clone()),
            events_seen: unsigned(row.events_seen),
            log_end: unsigned(row.log_end),
            pace: row.pace.map(|pace| pace.0),
            idle: row.idle.map(|idle| idle.0),
            company: packing::company(row.beside, row.since),
            locked: LockedTask {
                tenant_id: row.tenant_id.into(),
                task,
            },
        };
        (known.locked.task.id, known)
    });
    Ok(known.collect())
}

/// Records the new lines of one task's event file.
async fn lines(
    conn: &mut PgConnection,
    known: &mut ReportedTask,
    run: &TaskEvents,
    now: OffsetDateTime,
    sum: &mut ReportEffects,
) -> Result<(), StoreError> {
    let end = run.first_seq + run.events.len() as u64;
    if end <= known.events_seen {
        return Ok(());
    }
    if run.first_seq > known.events_seen {
        // The node has dropped or lost them.
        tracing::debug!(task.id = %run.task_id, from = known.events_seen, to = run.first_seq, "lines of a task never arrived");
    }
    let repeated = usize::try_from(known.events_seen.saturating_sub(run.first_seq))
        .expect("less than the run");
    let new = &run.events[repeated..];
    if known.is_current(run.revision) {
        // Uses the store's clock, because nodes' clocks differ.
        known.pace = new
            .iter()
            .fold(known.pace, |pace, (_, report)| match report {
                TaskReport::Pace { pace: told } => {
                    Some(Pace::after(pace.as_ref(), told, unix_ms(now)))
                }
                _ => pace,
            });
        known.idle = new
            .iter()
            .fold(known.idle, |before, (_, report)| match report {
                TaskReport::Activity { idle } => {
                    idle.map(|idle| Idleness::after(before.as_ref(), &idle, unix_ms(now)))
                }
                _ => before,
            });
        facts(conn, known, new, now, sum).await?;
        target::check(conn, known, new, sum).await?;
        sum.outcome.recorded += new.len() as u64;
    } else {
        sum.outcome.stale += new.len() as u64;
    }
    known.events_seen = end;
    sqlx::query!(
        "update task set events_seen = $2, pace = $3, idle = $4 where id = $1",
        run.task_id.0,
        signed(end),
        known.pace.map(Json) as _,
        known.idle.map(Json) as _
    )
    .execute(conn)
    .await?;
    Ok(())
}

async fn logs(
    conn: &mut PgConnection,
    known: &mut BTreeMap<TaskId, ReportedTask>,
    report: &NodeReport,
    now: OffsetDateTime,
    sum: &mut ReportEffects,
) -> Result<(), StoreError> {
    for (id, offset, bytes) in &report.logs {
        let Some(known) = known.get_mut(id) else {
            sum.outcome.unknown.insert(*id);
            continue;
        };
        let LockedTask { tenant_id, task } = &known.locked;
        let appended =
            log::store(conn, *tenant_id, *id, known.log_end, *offset, bytes, now).await?;
        let new_end = offset + bytes.len() as u64;
        let new = new_end.saturating_sub(known.log_end.max(*offset));
        known.log_end = known.log_end.max(new_end);
        let volume = sum.volumes.of(conn, *tenant_id, task.job_id).await?;
        if let Some(most) = volume.count_log(new) {
            let left = log::trim(conn, task.job_id, most).await?;
            volume.set_log(left);
        }
        if appended == LogAppendOutcome::Capped {
            let message = format!(
                "the log of {} has passed {} MiB; its oldest part is dropped",
                task.role,
                log::CAP_BYTES >> 20
            );
            let event = of_job(now, *tenant_id, task.job_id, Event::Note { message });
            sum.events.push(NewEvent {
                node_id: Some(task.node_id),
                ..event
            });
        }
    }
    Ok(())
}
