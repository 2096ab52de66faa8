//! Records which tasks run or have ended, and charges faults to nodes.

use super::{NodeReport, ReportEffects, ReportedTask};
use crate::checkpoint_request;
use crate::error::StoreError;
use crate::fault::{self, FaultCharge};
use crate::packing;
use crate::task;
use muster_model::assignment::Observed;
use muster_model::fault::NodeFault;
use muster_model::id::{JobId, TaskId};
use muster_model::task::{Outcome, Task, TaskEvent, TaskState};
use sqlx::PgConnection;
use std::collections::{BTreeMap, BTreeSet};
use time::OffsetDateTime;
use uuid::Uuid;

pub(super) async fn statuses(
    conn: &mut PgConnection,
    known: &BTreeMap<TaskId, ReportedTask>,
    report: &NodeReport,
    now: OffsetDateTime,
    sum: &mut ReportEffects,
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
                // The other job may be the cause, so the node is not charged.
                continue;
            }
        }
        for fault in faults(task, observed) {
            let charge = FaultCharge {
                node_id: task.node_id,
                of: Some((task.job_id, task.id)),
                fault,
                at: now,
                reported_at: None,
            };
            sum.events.extend(fault::charge(conn, &charge).await?);
        }
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
    let joined = done.changed.iter().filter(|task| {
        let known = &known[&task.id];
        task.state == TaskState::Running
            && known.refused_growth > 0
            && known.is_current(task.revision)
    });
    let grown: BTreeSet<JobId> = joined.map(|task| task.job_id).collect();
    has_grown(conn, &grown).await?;
    let released = done.changed.iter().filter(|task| task.state.is_released());
    sum.touched.extend(released.map(|task| task.node_id));
    let released = done.changed.iter().filter(|task| task.state.is_released());
    sum.touched
        .extend(checkpoint_request::unanswered(conn, released).await?);
    sum.events.extend(done.events);
    Ok(())
}

/// Resets the placement rejections of these jobs, because a task of their growth is up.
async fn has_grown(conn: &mut PgConnection, jobs: &BTreeSet<JobId>) -> Result<(), StoreError> {
    if jobs.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = jobs.iter().map(|id| id.0).collect();
    sqlx::query!("update job set put_off = 0 where id = any($1)", &ids)
        .execute(conn)
        .await?;
    Ok(())
}

/// Whether the task failed by itself: it was not ordered to stop, and its node is not the cause.
fn has_failed(state: &TaskState, observed: &Observed) -> bool {
    let Observed::Gone { outcome } = observed else {
        return false;
    };
    !is_told(state) && !outcome.is_clean() && !outcome.is_node_fault()
}

/// Returns the faults of the machine that an end proves. These are a signal from outside Muster to
/// a task that was not ordered to stop, and a driver call that blocks the program, in any state.
fn faults(task: &Task, observed: &Observed) -> Vec<NodeFault> {
    let Observed::Gone { outcome } = observed else {
        return Vec::new();
    };
    match outcome {
        Outcome::Signalled { signal, .. } if !is_told(&task.state) => {
            vec![NodeFault::Killed { signal: *signal }]
        }
        Outcome::Stopped {
            driver: Some(_), ..
        } if !task.state.is_released() => {
            let gpus = task.gpus.iter();
            gpus.map(|&gpu| NodeFault::DriverLost { gpu }).collect()
        }
        _ => Vec::new(),
    }
}

/// Whether the task was ordered to stop. Its end then proves nothing.
pub(super) fn is_told(state: &TaskState) -> bool {
    match state {
        TaskState::Assigned | TaskState::Running | TaskState::Suspending | TaskState::Suspended => {
            false
        }
        TaskState::Stopping | TaskState::Ending | TaskState::Released { .. } => true,
    }
}
