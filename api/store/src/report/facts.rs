//! Records the lines of a task's event file.

use super::statuses::is_told;
use super::{ReportEffects, ReportedTask};
use crate::checkpoint;
use crate::checkpoint_request;
use crate::error::StoreError;
use crate::event::{NewEvent, of_job};
use crate::metric::{self, DroppedMetrics, MetricOwner};
use crate::objective::{self, ObjectiveOwner};
use crate::packing;
use crate::plan::{JobFailureReport, JobFinishReport};
use crate::progress;
use crate::task::{self, LockedTask};
use muster_model::assignment::TaskReport;
use muster_model::event::Event;
use muster_model::id::{JobId, NodeId};
use muster_model::metric::{MAX_METRICS, MetricPoint, ObjectiveValues};
use muster_model::progress::Sample;
use muster_model::task::{Role, Task, TaskEvent};
use sqlx::PgConnection;
use sqlx::types::Json;
use time::OffsetDateTime;

/// Records new lines. Consecutive samples are written together, but never across a line that may
/// rewind the series. Metrics are written together too, but not across a restart of the workers
/// within their task.
pub(super) async fn facts(
    conn: &mut PgConnection,
    known: &mut ReportedTask,
    new: &[(OffsetDateTime, TaskReport)],
    now: OffsetDateTime,
    sum: &mut ReportEffects,
) -> Result<(), StoreError> {
    let job = known.locked.task.job_id;
    let mut samples: Vec<(OffsetDateTime, Sample)> = Vec::new();
    let mut points: Vec<MetricPoint> = Vec::new();
    let mut measured: Vec<&ObjectiveValues> = Vec::new();
    for (at, report) in new {
        match report {
            TaskReport::Metrics { points: more } => points.extend_from_slice(more),
            TaskReport::ObjectivesMeasured { measured: more } => measured.push(more),
            TaskReport::Progress { sample } => samples.push((*at, sample.clone())),
            TaskReport::Ready { from_step } => {
                flush(conn, known, &mut samples, sum).await?;
                let from_step = progress::begins(conn, job, *from_step).await?;
                if known.locked.task.role == (Role::Worker { rank: 0 }) {
                    // Uses the store's clock, because the start was recorded with it.
                    progress::started(conn, job, from_step, now).await?;
                }
                fact(conn, known, *at, &TaskReport::Ready { from_step }, sum).await?;
            }
            TaskReport::WorkersRestarted { from_step } => {
                flush(conn, known, &mut samples, sum).await?;
                metrics(conn, known, &points, sum).await?;
                points.clear();
                let from_step = progress::begins(conn, job, *from_step).await?;
                let report = TaskReport::WorkersRestarted { from_step };
                fact(conn, known, *at, &report, sum).await?;
            }
            other => fact(conn, known, *at, other, sum).await?,
        }
    }
    metrics(conn, known, &points, sum).await?;
    objectives(conn, known, &measured, sum).await?;
    flush(conn, known, &mut samples, sum).await
}

/// Stores metrics of rank 0. One event reports the first ones above the limit of names.
async fn metrics(
    conn: &mut PgConnection,
    known: &ReportedTask,
    points: &[MetricPoint],
    sum: &mut ReportEffects,
) -> Result<(), StoreError> {
    let LockedTask { tenant_id, task } = &known.locked;
    if points.is_empty() || task.role != (Role::Worker { rank: 0 }) {
        return Ok(());
    }
    let owner = MetricOwner {
        tenant: *tenant_id,
        job: task.job_id,
        revision: known.job_revision,
    };
    let DroppedMetrics {
        values,
        name: Some(name),
    } = metric::record(conn, owner, points).await?
    else {
        return Ok(());
    };
    let volume = sum.volumes.of(conn, *tenant_id, task.job_id).await?;
    if volume.drop_metrics(values) {
        let message = format!(
            "the program has logged more than {MAX_METRICS} different metrics; values of further names such as {name:?} are dropped"
        );
        let event = NewEvent {
            node_id: Some(task.node_id),
            ..of_job(sum.now, *tenant_id, task.job_id, Event::Note { message })
        };
        sum.events.extend(volume.keep(event));
    }
    Ok(())
}

/// Stores values of a study's objectives, which rank 0 reports.
async fn objectives(
    conn: &mut PgConnection,
    known: &ReportedTask,
    measured: &[&ObjectiveValues],
    sum: &mut ReportEffects,
) -> Result<(), StoreError> {
    let LockedTask { tenant_id, task } = &known.locked;
    if measured.is_empty() || task.role != (Role::Worker { rank: 0 }) {
        return Ok(());
    }
    let owner = ObjectiveOwner {
        tenant: *tenant_id,
        job: task.job_id,
        revision: known.job_revision,
    };
    objective::record(conn, owner, measured).await?;
    sum.sampled = true;
    Ok(())
}

async fn flush(
    conn: &mut PgConnection,
    known: &ReportedTask,
    samples: &mut Vec<(OffsetDateTime, Sample)>,
    sum: &mut ReportEffects,
) -> Result<(), StoreError> {
    if !samples.is_empty() {
        let (job, revision) = (known.locked.task.job_id, known.job_revision);
        let (company, now) = (known.company, sum.now);
        let volume = sum.volumes.of(conn, known.locked.tenant_id, job).await?;
        let kept = volume.keep_points(samples.len() as u64);
        let current = progress::record(
            conn,
            job,
            revision,
            (samples.as_slice(), kept),
            company,
            now,
        )
        .await?;
        assert!(current, "the job's row is locked");
        samples.clear();
        sum.sampled = true;
    }
    Ok(())
}

/// Records one line that is not a sample.
async fn fact(
    conn: &mut PgConnection,
    known: &mut ReportedTask,
    at: OffsetDateTime,
    report: &TaskReport,
    sum: &mut ReportEffects,
) -> Result<(), StoreError> {
    let LockedTask { tenant_id, task } = &mut known.locked;
    let (tenant, job, revision) = (*tenant_id, task.job_id, task.revision);
    let event = match report {
        TaskReport::Progress { .. }
        | TaskReport::Metrics { .. }
        | TaskReport::ObjectivesMeasured { .. } => {
            unreachable!("samples and metrics are written together")
        }
        // Stored with the task in `lines`.
        TaskReport::Pace { .. } | TaskReport::Activity { .. } => return Ok(()),
        TaskReport::Listening { address } => {
            listening(conn, task, address, sum).await?;
            None
        }
        TaskReport::Ready { from_step } => {
            let is_chief = task.role == Role::Worker { rank: 0 };
            if is_chief {
                progress::rewind(conn, job, revision, *from_step).await?;
            }
            (is_chief && *from_step > 0).then_some(Event::Resumed {
                from_step: *from_step,
            })
        }
        TaskReport::WorkersRestarted { from_step } => {
            if task.role != (Role::Worker { rank: 0 }) {
                return Ok(());
            }
            // The former workers have reported under this revision too.
            progress::rewind(conn, job, revision + 1, *from_step).await?;
            metric::restart(conn, job).await?;
            Some(Event::Resumed {
                from_step: *from_step,
            })
        }
        TaskReport::Evaluated { evaluation } => {
            if sum.volumes.of(conn, tenant, job).await?.has_room() {
                progress::evaluated(conn, tenant, job, revision, at, evaluation).await?;
            }
            Some(Event::Evaluated {
                step: evaluation.step,
                epoch: evaluation.epoch,
                split: evaluation.split,
                loss: evaluation.loss,
                accuracy: evaluation.accuracy,
            })
        }
        TaskReport::CheckpointWritten { checkpoint } => {
            checkpoint::record(conn, tenant, job, checkpoint, at).await?;
            if let Some(most) = sum.volumes.of(conn, tenant, job).await?.count_checkpoint() {
                checkpoint::forget(conn, job, most).await?;
            }
            Some(Event::CheckpointWritten {
                checkpoint: checkpoint.clone(),
            })
        }
        TaskReport::CheckpointReported { step, path } => {
            // With a path the checkpoint counts once its node has registered it.
            if task.role == (Role::Worker { rank: 0 }) && path.is_none() {
                // A clock that is ahead must not make the checkpoint younger than the report.
                progress::reported_checkpoint(conn, job, *step, at.min(sum.now)).await?;
            }
            None
        }
        TaskReport::CheckpointRequestEnded { result, waited_ms } => {
            if task.role != (Role::Worker { rank: 0 }) {
                return Ok(());
            }
            let nodes = checkpoint_request::ended(conn, job, *result, *waited_ms).await?;
            sum.touched.extend(nodes);
            Some(Event::CheckpointRequestEnded {
                result: *result,
                waited_ms: *waited_ms,
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
        // The suspension is already recorded. The next sample may include the time of the
        // suspension.
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
            let finished = JobFinishReport {
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
        TaskReport::Failed {
            message,
            retryable,
            lacks,
        } => {
            let failed = JobFailureReport {
                message: message.clone(),
                retryable: *retryable,
                lacks: lacks.clone(),
            };
            fail(conn, (job, task.node_id), &failed).await?;
            if !is_told(&task.state) {
                packing::failed(conn, job, known.job_revision, known.company, sum.now).await?;
            }
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
    if let Some(event) = event {
        // Retention would never find an event with a future time, from a node whose clock is ahead.
        let event = NewEvent {
            node_id,
            ..of_job(at.min(sum.now), tenant, job, event)
        };
        let volume = sum.volumes.of(conn, tenant, job).await?;
        sum.events.extend(volume.keep(event));
    }
    Ok(())
}

/// Records that the worker is suspended. Another job may use its GPUs from now on.
async fn stood_still(
    conn: &mut PgConnection,
    locked: &mut LockedTask,
    sum: &mut ReportEffects,
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

/// Stores a shard's address and sends it to every task of the job.
async fn listening(
    conn: &mut PgConnection,
    task: &mut Task,
    address: &str,
    sum: &mut ReportEffects,
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

/// Stores the end of a training. Returns `false` if the job has one already.
pub(super) async fn finish(
    conn: &mut PgConnection,
    job: JobId,
    finished: &JobFinishReport,
) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "update job set finished = $2 where id = $1 and finished is null",
        job.0,
        Json(finished) as _
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// Stores a failure. The first one is the cause and later ones follow from it, with two exceptions.
/// A failure that no restart can help replaces retryable ones. A failure that names a missing
/// capability of the node replaces retryable ones without it, because its peers only lost their
/// connections.
async fn fail(
    conn: &mut PgConnection,
    (job, node): (JobId, NodeId),
    failed: &JobFailureReport,
) -> Result<(), StoreError> {
    sqlx::query!(
        "update job set failed = $2
         where id = $1 and (failed is null
            or ((failed -> 'retryable')::boolean and (not $3 or ($4 and failed ->> 'lacks' is null))))",
        job.0,
        Json(failed) as _,
        failed.retryable,
        failed.lacks.is_some()
    )
    .execute(&mut *conn)
    .await?;
    if failed.lacks.is_some() {
        sqlx::query!(
            "update job set unfit_nodes = unfit_nodes || $2::uuid where id = $1 and $2 <> all (unfit_nodes)",
            job.0,
            node.0
        )
        .execute(conn)
        .await?;
    }
    Ok(())
}
