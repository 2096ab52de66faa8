//! Reports of nodes become facts: which tasks are up or gone, what they told, what they logged. Nothing is decided here; the
//! next round does, and is woken when a fact asks for it.
//!
//! Everything may come twice. Events are recognised by (task, number of the line), logs by (task, offset), states by the
//! transitions themselves. What a task of an older revision tells changes nothing of its job; its log is kept all the same.

use crate::checkpoint;
use crate::error::StoreError;
use crate::event::{self, NewEvent, of_job};
use crate::fault::{self, Charge};
use crate::log::{self, Appended};
use crate::node;
use crate::number::{signed, unsigned, unsigned32};
use crate::packing;
use crate::plan::{FailedReport, Finished};
use crate::progress::{self, unix_ms};
use crate::task::{self, Locked, role};
use crate::wake::{self, Channel};
use muster_model::assignment::{Observed, TaskReport};
use muster_model::event::Event;
use muster_model::fault::NodeFault;
use muster_model::id::{JobId, NodeId, TaskId};
use muster_model::pace::Pace;
use muster_model::packing::Company;
use muster_model::progress::Sample;
use muster_model::task::{Outcome, Role, Task, TaskEvent, TaskState};
use sqlx::PgConnection;
use sqlx::types::Json;
use std::collections::{BTreeMap, BTreeSet};
use time::OffsetDateTime;
use uuid::Uuid;

/// What a node observed since its last report, or all of it after it dialled in anew.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeReport {
    /// Task, its revision, what its node sees of it.
    pub statuses: Vec<(TaskId, u64, Observed)>,
    pub events: Vec<TaskEvents>,
    /// Task, offset of the first byte, bytes.
    pub logs: Vec<(TaskId, u64, Vec<u8>)>,
}

/// A run of lines of a task's events file.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskEvents {
    pub task_id: TaskId,
    pub revision: u64,
    /// Number of the first line, from 0.
    pub first_seq: u64,
    /// Each with the time at which the node read it.
    pub events: Vec<(OffsetDateTime, TaskReport)>,
}

/// What came of a report.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReportOutcome {
    /// Lines that were new and were recorded.
    pub recorded: u64,
    /// Lines of tasks whose job has a newer revision; not recorded.
    pub stale: u64,
    /// Tasks that are not of this node.
    pub unknown: BTreeSet<TaskId>,
    /// Whether a round has something to act on.
    pub round_due: bool,
}

/// A task of the report, locked, and what its job has come to.
struct Known {
    locked: Locked,
    job_revision: u64,
    job_turn: u64,
    events_seen: u64,
    log_end: u64,
    pace: Option<Pace>,
    /// The other job on its GPU.
    company: Option<Company>,
}

impl Known {
    /// A task that goes on while others join or leave reports the revision of its own start and belongs to the newest.
    fn is_current(&self, reported: u64) -> bool {
        self.locked.task.revision == self.job_revision && reported <= self.job_revision
    }
}

/// What the report adds up to, written at its end.
struct Sum {
    /// When it is recorded. States are stamped with it, and not with the clock of a node.
    now: OffsetDateTime,
    outcome: ReportOutcome,
    events: Vec<NewEvent>,
    /// Nodes whose assignment changed.
    touched: BTreeSet<NodeId>,
    sampled: bool,
}

/// Records a report of `node`. When the transaction has committed it may be acknowledged.
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
    let mut sum = Sum {
        now,
        outcome: ReportOutcome::default(),
        events: Vec::new(),
        touched: BTreeSet::new(),
        sampled: false,
    };
    // Before the states: a task that is gone has told all that it ever will.
    for run in &report.events {
        match known.get_mut(&run.task_id) {
            Some(task) => lines(conn, task, run, now, &mut sum).await?,
            None => drop(sum.outcome.unknown.insert(run.task_id)),
        }
    }
    logs(conn, &mut known, report, now, &mut sum).await?;
    statuses(conn, &known, report, now, &mut sum).await?;
    event::append(conn, &sum.events).await?;
    node::bump(conn, &sum.touched).await?;
    let mut woken = Vec::new();
    if !sum.events.is_empty() || sum.sampled {
        woken.push(Channel::Events);
    }
    if sum.outcome.round_due {
        woken.push(Channel::Rounds);
    }
    if !woken.is_empty() {
        wake::send(conn, &woken).await?;
    }
    Ok(sum.outcome)
}

/// Locks the jobs, then the tasks, each in order of id, as every writer does.
async fn lock(
    conn: &mut PgConnection,
    node: NodeId,
    report: &NodeReport,
) -> Result<BTreeMap<TaskId, Known>, StoreError> {
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
        "select id, revision, turn from job
         where id in (select job_id from task where id = any($1) and node_id = $2)
         order by id for no key update",
        &ids,
        node.0
    )
    .fetch_all(&mut *conn)
    .await?;
    let jobs: BTreeMap<Uuid, (u64, u64)> = jobs
        .into_iter()
        .map(|row| (row.id, (unsigned(row.revision), unsigned(row.turn))))
        .collect();
    let rows = sqlx::query!(
        r#"select t.id, t.tenant_id, t.job_id, t.revision, t.role, t.role_index, t.node_id, t.gpus, t.state as "state: Json<TaskState>",
                  t.address, t.events_seen, t.log_end, t.pace as "pace: Json<Pace>",
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
        let known = Known {
            job_revision: jobs[&row.job_id].0,
            job_turn: jobs[&row.job_id].1,
            events_seen: unsigned(row.events_seen),
            log_end: unsigned(row.log_end),
            pace: row.pace.map(|pace| pace.0),
            company: packing::company(row.beside, row.since),
            locked: Locked {
                tenant_id: row.tenant_id.into(),
                task,
            },
        };
        (known.locked.task.id, known)
    });
    Ok(known.collect())
}

/// The new lines of one task's events file.
async fn lines(
    conn: &mut PgConnection,
    known: &mut Known,
    run: &TaskEvents,
    now: OffsetDateTime,
    sum: &mut Sum,
) -> Result<(), StoreError> {
    let end = run.first_seq + run.events.len() as u64;
    if end <= known.events_seen {
        return Ok(());
    }
    if run.first_seq > known.events_seen {
        tracing::warn!(task.id = %run.task_id, from = known.events_seen, to = run.first_seq, "lines of a task never arrived");
    }
    let repeated = usize::try_from(known.events_seen.saturating_sub(run.first_seq))
        .expect("less than the run");
    let new = &run.events[repeated..];
    if known.is_current(run.revision) {
        // By the store's time, as silence is: nodes' clocks differ.
        known.pace = new
            .iter()
            .fold(known.pace, |pace, (_, report)| match report {
                TaskReport::Pace { pace: told } => {
                    Some(Pace::after(pace.as_ref(), told, unix_ms(now)))
                }
                _ => pace,
            });
        facts(conn, known, new, now, sum).await?;
        sum.outcome.recorded += new.len() as u64;
    } else {
        sum.outcome.stale += new.len() as u64;
    }
    known.events_seen = end;
    sqlx::query!(
        "update task set events_seen = $2, pace = $3 where id = $1",
        run.task_id.0,
        signed(end),
        known.pace.map(Json) as _
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Samples are written together, but never across a line that may rewind the series.
async fn facts(
    conn: &mut PgConnection,
    known: &mut Known,
    new: &[(OffsetDateTime, TaskReport)],
    now: OffsetDateTime,
    sum: &mut Sum,
) -> Result<(), StoreError> {
    let job = known.locked.task.job_id;
    let mut samples: Vec<(OffsetDateTime, Sample)> = Vec::new();
    for (at, report) in new {
        match report {
            TaskReport::Progress { sample } => samples.push((*at, sample.clone())),
            TaskReport::Ready { from_step } => {
                flush(conn, known, &mut samples, sum).await?;
                if known.locked.task.role == (Role::Worker { rank: 0 }) {
                    // By the clock that wrote down when it was started.
                    progress::started(conn, job, *from_step, now).await?;
                }
                fact(conn, known, *at, report, sum).await?;
            }
            other => fact(conn, known, *at, other, sum).await?,
        }
    }
    flush(conn, known, &mut samples, sum).await
}

async fn flush(
    conn: &mut PgConnection,
    known: &Known,
    samples: &mut Vec<(OffsetDateTime, Sample)>,
    sum: &mut Sum,
) -> Result<(), StoreError> {
    if !samples.is_empty() {
        let (job, revision) = (known.locked.task.job_id, known.job_revision);
        let (company, now) = (known.company, sum.now);
        let current = progress::record(conn, job, revision, samples, company, now).await?;
        assert!(current, "the job's row is locked");
        samples.clear();
        sum.sampled = true;
    }
    Ok(())
}

/// One line that is not a sample.
async fn fact(
    conn: &mut PgConnection,
    known: &mut Known,
    at: OffsetDateTime,
    report: &TaskReport,
    sum: &mut Sum,
) -> Result<(), StoreError> {
    let Locked { tenant_id, task } = &mut known.locked;
    let (tenant, job, revision) = (*tenant_id, task.job_id, task.revision);
    let event = match report {
        TaskReport::Progress { .. } => unreachable!("samples are written together"),
        // Kept with the task.
        TaskReport::Pace { .. } => return Ok(()),
        TaskReport::Listening { address } => {
            listening(conn, task, address, sum).await?;
            None
        }
        TaskReport::Ready { from_step } => {
            let is_chief = task.role == Role::Worker { rank: 0 };
            if is_chief {
                progress::rewind(conn, job, *from_step).await?;
            }
            (is_chief && *from_step > 0).then_some(Event::Resumed {
                from_step: *from_step,
            })
        }
        TaskReport::Evaluated { evaluation } => {
            progress::evaluated(conn, tenant, job, revision, at, evaluation).await?;
            Some(Event::Evaluated {
                step: evaluation.step,
                epoch: evaluation.epoch,
                loss: evaluation.loss,
                accuracy: evaluation.accuracy,
            })
        }
        TaskReport::CheckpointWritten { checkpoint } => {
            checkpoint::record(conn, tenant, job, checkpoint, at).await?;
            Some(Event::CheckpointWritten {
                checkpoint: checkpoint.clone(),
            })
        }
        TaskReport::CheckpointPruned { step } => {
            checkpoint::prune(conn, job, *step).await?;
            Some(Event::CheckpointPruned { step: *step })
        }
        TaskReport::Resized {
            step,
            workers,
            ps_shards,
            pause_ms,
        } => Some(Event::Resized {
            step: *step,
            workers: *workers,
            ps_shards: *ps_shards,
            pause_ms: *pause_ms,
        }),
        TaskReport::Suspended { turn, .. } => {
            if *turn == known.job_turn {
                stood_still(conn, &mut known.locked, sum).await?;
            }
            return Ok(());
        }
        // It was told to; what there is to know is known. Its next sample may count the time in which it stood still.
        TaskReport::Continued { .. } => {
            packing::unsettle(conn, job, sum.now).await?;
            None
        }
        TaskReport::PeerGone { task_id, step } => Some(Event::PeerGone {
            task_id: *task_id,
            step: *step,
        }),
        TaskReport::Interrupted { step } => Some(Event::Note {
            message: format!("{} stopped in order at step {step}", task.role),
        }),
        TaskReport::Finished {
            step,
            reason,
            model_path,
        } => {
            let finished = Finished {
                step: *step,
                reason: reason.clone(),
                model_path: model_path.clone(),
            };
            finish(conn, job, &finished).await?;
            sum.outcome.round_due = true;
            Some(Event::TrainingFinished {
                step: *step,
                reason: reason.clone(),
                model_path: model_path.clone(),
            })
        }
        TaskReport::Failed { message, retryable } => {
            fail(
                conn,
                job,
                &FailedReport {
                    message: message.clone(),
                    retryable: *retryable,
                },
            )
            .await?;
            packing::failed(conn, job, known.job_revision, known.company, sum.now).await?;
            sum.outcome.round_due = true;
            Some(Event::TaskFailed {
                task_id: task.id,
                role: task.role,
                message: message.clone(),
            })
        }
        TaskReport::Note { message } => Some(Event::Note {
            message: message.clone(),
        }),
    };
    let node_id = Some(task.node_id);
    sum.events.extend(event.map(|event| NewEvent {
        node_id,
        ..of_job(at, tenant, job, event)
    }));
    Ok(())
}

/// The worker uses its GPUs no more, which another job may have now.
async fn stood_still(
    conn: &mut PgConnection,
    locked: &mut Locked,
    sum: &mut Sum,
) -> Result<(), StoreError> {
    let step = (locked.clone(), TaskEvent::StoodStill);
    let done = task::transition(conn, vec![step], sum.now).await?;
    sum.outcome.round_due |= !done.changed.is_empty();
    sum.events.extend(done.events);
    if let Some(task) = done.changed.into_iter().next() {
        locked.task = task;
    }
    Ok(())
}

/// A shard's address goes to every task of its job.
async fn listening(
    conn: &mut PgConnection,
    task: &mut Task,
    address: &str,
    sum: &mut Sum,
) -> Result<(), StoreError> {
    if task.address.as_deref() == Some(address) {
        return Ok(());
    }
    task.address = Some(address.to_owned());
    sqlx::query!(
        "update task set address = $2 where id = $1",
        task.id.0,
        address
    )
    .execute(&mut *conn)
    .await?;
    let nodes = sqlx::query_scalar!(
        "select distinct node_id from task where job_id = $1 and released_at is null",
        task.job_id.0
    )
    .fetch_all(conn)
    .await?;
    sum.touched.extend(nodes.into_iter().map(NodeId));
    Ok(())
}

async fn finish(
    conn: &mut PgConnection,
    job: JobId,
    finished: &Finished,
) -> Result<(), StoreError> {
    sqlx::query!(
        "update job set finished = coalesce(finished, $2) where id = $1",
        job.0,
        Json(finished) as _
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// The first failure is the cause and the others follow from it, but one that no restart can help outweighs those that it can.
async fn fail(
    conn: &mut PgConnection,
    job: JobId,
    failed: &FailedReport,
) -> Result<(), StoreError> {
    sqlx::query!(
        "update job set failed = $2
         where id = $1 and (failed is null or ((failed -> 'retryable')::boolean and not $3))",
        job.0,
        Json(failed) as _,
        failed.retryable
    )
    .execute(conn)
    .await?;
    Ok(())
}

async fn logs(
    conn: &mut PgConnection,
    known: &mut BTreeMap<TaskId, Known>,
    report: &NodeReport,
    now: OffsetDateTime,
    sum: &mut Sum,
) -> Result<(), StoreError> {
    for (id, offset, bytes) in &report.logs {
        let Some(known) = known.get_mut(id) else {
            sum.outcome.unknown.insert(*id);
            continue;
        };
        let Locked { tenant_id, task } = &known.locked;
        let appended = log::store(conn, *tenant_id, *id, known.log_end, *offset, bytes).await?;
        known.log_end = known.log_end.max(offset + bytes.len() as u64);
        if appended == Appended::Capped {
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

async fn statuses(
    conn: &mut PgConnection,
    known: &BTreeMap<TaskId, Known>,
    report: &NodeReport,
    now: OffsetDateTime,
    sum: &mut Sum,
) -> Result<(), StoreError> {
    let mut newest: BTreeMap<TaskId, &Observed> = BTreeMap::new();
    for (id, revision, observed) in &report.statuses {
        match known.get(id) {
            Some(known) if *revision <= known.locked.task.revision => {
                newest.insert(*id, observed);
            }
            Some(_) => {}
            None => drop(sum.outcome.unknown.insert(*id)),
        }
    }
    for (id, observed) in &newest {
        let task = &known[id].locked.task;
        if has_failed(&task.state, observed) && known[id].is_current(task.revision) {
            let (revision, company) = (known[id].job_revision, known[id].company);
            if packing::failed(conn, task.job_id, revision, company, now).await? {
                // The other may have done it, and the machine did not.
                continue;
            }
        }
        let Some(fault) = killed(&task.state, observed) else {
            continue;
        };
        let charge = Charge {
            node_id: task.node_id,
            of: Some((task.job_id, task.id)),
            fault,
            at: now,
        };
        sum.events.extend(fault::charge(conn, &charge).await?);
    }
    let steps = newest.into_iter().map(|(id, observed)| {
        let event = match observed {
            Observed::Running => TaskEvent::Up,
            Observed::Gone { outcome } => TaskEvent::Gone {
                outcome: outcome.clone(),
            },
        };
        (known[&id].locked.clone(), event)
    });
    let done = task::transition(conn, steps.collect(), now).await?;
    for id in &done.refused {
        tracing::warn!(task.id = %id, node.id = %known[id].locked.task.node_id, "a released task is reported as running");
    }
    sum.outcome.round_due |= !done.changed.is_empty();
    let released = done.changed.iter().filter(|task| task.state.is_released());
    sum.touched.extend(released.map(|task| task.node_id));
    sum.events.extend(done.events);
    Ok(())
}

/// An end of its own that is none in order: neither told to, nor with its node.
fn has_failed(state: &TaskState, observed: &Observed) -> bool {
    let Observed::Gone { outcome } = observed else {
        return false;
    };
    let is_told = match state {
        TaskState::Assigned | TaskState::Running | TaskState::Suspending | TaskState::Suspended => {
            false
        }
        TaskState::Stopping | TaskState::Ending | TaskState::Released { .. } => true,
    };
    !is_told && !outcome.is_clean() && !outcome.is_node_fault()
}

/// A signal that nobody of ours has sent: the task was not told to stop.
fn killed(state: &TaskState, observed: &Observed) -> Option<NodeFault> {
    let Observed::Gone {
        outcome: Outcome::Signalled { signal },
    } = observed
    else {
        return None;
    };
    let signal = *signal;
    match state {
        TaskState::Assigned | TaskState::Running | TaskState::Suspending | TaskState::Suspended => {
            Some(NodeFault::Killed { signal })
        }
        TaskState::Stopping | TaskState::Ending | TaskState::Released { .. } => None,
    }
}
