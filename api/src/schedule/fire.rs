//! Submission of the job of a due schedule.

use super::timing::Timing;
use super::unreadable;
use crate::auth::Caller;
use crate::job::submit;
use crate::problem::{ApiError, ProblemKind};
use crate::state::ApiState;
use muster_model::id::JobId;
use muster_model::schedule::{
    CatchUp, Overlap, SCHEDULE_LABEL, SchedulePause, ScheduleResult, ScheduleRun,
};
use muster_model::spec::JobSpec;
use muster_store::schedule::{self, DueSchedule, Owner, ScheduleRow};
use muster_store::token::Principal;
use muster_store::{PgConnection, StoreError, pool};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

/// Age from which a planned time counts as missed.
const MISSED_AFTER: Duration = Duration::minutes(10);
/// Pause before the next attempt if the expression does not describe a time any more.
const WITHOUT_TIME: Duration = Duration::DAY;

/// A locked schedule whose time has come.
struct Due {
    row: ScheduleRow,
    /// The last job, if it has not ended.
    open_job: Option<JobId>,
    times: Times,
}

#[derive(Debug, Clone, Copy)]
struct Times {
    /// The planned time: the newest one, if several were missed.
    planned_at: OffsetDateTime,
    next_at: OffsetDateTime,
}

impl Times {
    fn of(cron: &str, time_zone: &str, planned_at: OffsetDateTime, now: OffsetDateTime) -> Self {
        let timing = Timing::parse(cron, time_zone).ok();
        let newest = timing.as_ref().map(|at| at.newest_due(planned_at, now));
        let next = timing.and_then(|timing| timing.next_after(now));
        Self {
            planned_at: newest.unwrap_or(planned_at),
            next_at: next.unwrap_or(now + WITHOUT_TIME),
        }
    }
}

/// Submits the job of a due schedule, or records why not. Does nothing if another API server has
/// done it.
///
/// # Errors
/// If the store does not answer; the schedule then stays due.
pub async fn fire(
    app: &ApiState,
    schedule: &DueSchedule,
    now: OffsetDateTime,
) -> Result<(), ApiError> {
    let Err(error) = attempt(app, schedule, now).await else {
        return Ok(());
    };
    if error.kind() == ProblemKind::Unavailable {
        return Err(error);
    }
    // The refusal has rolled its transaction back, so another server may have taken the lock since.
    let mut tx = pool::begin_for(&app.pool, schedule.tenant).await?;
    let Some(due) = schedule::lock_due_times(&mut tx, &schedule.name, now).await? else {
        return Ok(());
    };
    let times = Times::of(&due.cron, &due.time_zone, due.next_at, now);
    let reason = error.detail().to_owned();
    tracing::info!(schedule = schedule.name, reason, "a submission is refused");
    let result = ScheduleResult::Refused { reason };
    record(&mut tx, schedule, times, result, now).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(())
}

async fn attempt(
    app: &ApiState,
    schedule: &DueSchedule,
    now: OffsetDateTime,
) -> Result<(), ApiError> {
    let mut tx = pool::begin_for(&app.pool, schedule.tenant).await?;
    let Some(due) = locked(&mut tx, schedule, now).await? else {
        return Ok(());
    };
    let Some(owner) = schedule::owner(&mut tx, due.row.user_id, now).await? else {
        let at = (schedule.tenant, schedule.name.as_str());
        let why = SchedulePause::OwnerWithoutToken;
        schedule::pause(&mut tx, at, why, None, now).await?;
        tx.commit().await.map_err(StoreError::from)?;
        return Ok(());
    };
    let skipped = skipped(&due, now);
    let is_submitted = skipped.is_none();
    let result = match skipped {
        Some(reason) => ScheduleResult::Skipped { reason },
        None => {
            let job = submitted(app, &mut tx, schedule, &due.row, owner).await?;
            ScheduleResult::Submitted { job }
        }
    };
    record(&mut tx, schedule, due.times, result, now).await?;
    tx.commit().await.map_err(StoreError::from)?;
    if is_submitted {
        app.commit_notifier.notify();
    }
    Ok(())
}

async fn locked(
    conn: &mut PgConnection,
    schedule: &DueSchedule,
    now: OffsetDateTime,
) -> Result<Option<Due>, ApiError> {
    let found = schedule::lock_due(conn, &schedule.name, now).await;
    Ok(found.map_err(unreadable)?.map(|(row, open_job)| {
        let document = &row.document;
        Due {
            times: Times::of(&document.cron, &document.time_zone, row.next_at, now),
            open_job,
            row,
        }
    }))
}

/// Returns why a rule of the schedule leaves the time out.
fn skipped(due: &Due, now: OffsetDateTime) -> Option<String> {
    let rules = &due.row.document;
    if rules.catch_up == CatchUp::None && now - due.times.planned_at > MISSED_AFTER {
        let text = "no API server came to that time within 10 minutes, and `catch_up` is `none`";
        return Some(text.to_owned());
    }
    match (rules.overlap, due.open_job) {
        (Overlap::Skip, Some(job)) => {
            Some(format!("job {job} has not ended, and `overlap` is `skip`"))
        }
        _ => None,
    }
}

/// Submits the job for the owner of the schedule.
async fn submitted(
    app: &ApiState,
    conn: &mut PgConnection,
    schedule: &DueSchedule,
    row: &ScheduleRow,
    owner: Owner,
) -> Result<JobId, ApiError> {
    let caller = Caller::of_schedule(Principal {
        token_id: Uuid::nil().into(),
        tenant_id: schedule.tenant,
        tenant_name: owner.tenant_name,
        user_id: row.user_id,
        user_name: row.owner.clone(),
        access: owner.access,
    });
    let new = submit::new_job(&caller, labelled(row.document.job.clone(), &row.name))?;
    Ok(submit::begun(app, conn, &caller, new).await?.id)
}

async fn record(
    conn: &mut PgConnection,
    schedule: &DueSchedule,
    times: Times,
    result: ScheduleResult,
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    let run = ScheduleRun {
        planned_at: times.planned_at,
        at: now,
        result,
    };
    let at = (schedule.tenant, schedule.name.as_str());
    schedule::advance(conn, at, &run, times.next_at).await
}

/// Returns the document with the label of the schedule.
pub fn labelled(mut job: JobSpec, name: &str) -> JobSpec {
    let (label, name) = (SCHEDULE_LABEL.to_owned(), name.to_owned());
    job.labels.insert(label, name);
    job
}
