//! Planned times that have come. The transaction that locks a due schedule submits its job and
//! advances `next_at`, so no two API servers submit a job for the same time.

use super::{ScheduleRow, ScheduleSqlRow, select_schedules};
use crate::error::StoreError;
use crate::event::{self, of_job};
use crate::int_convert::signed;
use crate::notify::{self, NotifyChannel};
use muster_model::event::Event;
use muster_model::id::{JobId, TenantId, UserId};
use muster_model::schedule::{ScheduleResult, ScheduleRun};
use muster_model::tenant::Access;
use serde_json::Value;
use sqlx::PgConnection;
use sqlx::types::Json;
use time::OffsetDateTime;

/// A schedule whose planned time has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueSchedule {
    pub tenant: TenantId,
    pub name: String,
    /// The planned time.
    pub next_at: OffsetDateTime,
}

/// Times of a schedule, without its document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueTimes {
    pub cron: String,
    pub time_zone: String,
    /// The planned time.
    pub next_at: OffsetDateTime,
}

/// Owner of a schedule, with at least one valid token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub tenant_name: String,
    /// Greatest access of the valid tokens.
    pub access: Access,
}

/// Returns up to `most` due schedules of all tenants that follow `after`, the longest overdue
/// first. Needs no scope.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn due(
    conn: &mut PgConnection,
    now: OffsetDateTime,
    after: Option<&DueSchedule>,
    most: u64,
) -> Result<Vec<DueSchedule>, StoreError> {
    let rows = sqlx::query!(
        r#"select tenant_id as "tenant_id!", name as "name!", next_at as "next_at!"
           from muster_due_schedules($1, $2, $3, $4, $5)"#,
        now,
        after.map(|after| after.next_at),
        after.map(|after| after.tenant.0),
        after.map(|after| after.name.as_str()),
        signed(most)
    )
    .fetch_all(conn)
    .await?;
    let due = rows.into_iter().map(|row| DueSchedule {
        tenant: row.tenant_id.into(),
        name: row.name,
        next_at: row.next_at,
    });
    Ok(due.collect())
}

/// Returns a schedule of the tenant in scope and locks it. `None` if it is not due any more, or
/// another transaction has locked it. The second value is the last job if it has not ended.
///
/// # Errors
/// [`StoreError::Statement`]; [`StoreError::Decode`] for a document of another release.
pub async fn lock_due(
    conn: &mut PgConnection,
    name: &str,
    now: OffsetDateTime,
) -> Result<Option<(ScheduleRow, Option<JobId>)>, StoreError> {
    let row = select_schedules!(
        "where s.name = $1 and s.paused is null and s.next_at <= $2 for update of s skip locked",
        name,
        now
    )
    .fetch_optional(&mut *conn)
    .await?;
    let Some(row) = row.map(ScheduleRow::try_from).transpose()? else {
        return Ok(None);
    };
    let open = open_job(conn, row.last_job).await?;
    Ok(Some((row, open)))
}

/// Locks a schedule of the tenant in scope as [`lock_due`], and returns its times. It reads no
/// document, so it also returns the times of a schedule with an unreadable one.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn lock_due_times(
    conn: &mut PgConnection,
    name: &str,
    now: OffsetDateTime,
) -> Result<Option<DueTimes>, StoreError> {
    let times = sqlx::query_as!(
        DueTimes,
        "select cron, time_zone, next_at from schedule
         where name = $1 and paused is null and next_at <= $2 for update skip locked",
        name,
        now
    )
    .fetch_optional(conn)
    .await?;
    Ok(times)
}

/// Locks a schedule and returns its last job if it has not ended.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn lock_open_job(
    conn: &mut PgConnection,
    name: &str,
) -> Result<Option<JobId>, StoreError> {
    let last = sqlx::query_scalar!(
        "select last_job from schedule where name = $1 for update",
        name
    )
    .fetch_optional(&mut *conn)
    .await?;
    open_job(conn, last.flatten().map(JobId::from)).await
}

/// Returns the job if it has not ended.
async fn open_job(
    conn: &mut PgConnection,
    job: Option<JobId>,
) -> Result<Option<JobId>, StoreError> {
    let Some(job) = job else {
        return Ok(None);
    };
    let is_open = sqlx::query_scalar!(
        r#"select finished_at is null and deleted_at is null as "is_open!" from job where id = $1"#,
        job.0
    )
    .fetch_optional(conn)
    .await?;
    Ok(is_open.unwrap_or(false).then_some(job))
}

/// Returns the owner of a schedule; `None` without a valid token.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn owner(
    conn: &mut PgConnection,
    user: UserId,
    now: OffsetDateTime,
) -> Result<Option<Owner>, StoreError> {
    let row = sqlx::query!(
        r#"select t.name, bool_or(k.access = 'admin') as "is_admin!"
           from api_token k join tenant t on t.id = k.tenant_id
           where k.user_id = $1 and k.revoked_at is null and (k.expires_at is null or k.expires_at > $2)
           group by t.name"#,
        user.0,
        now
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| Owner {
        tenant_name: row.name,
        access: if row.is_admin {
            Access::Admin
        } else {
            Access::Member
        },
    }))
}

/// Records the result of a planned time and sets the next one. The caller has locked the schedule.
/// A job that was not submitted is an event of the tenant.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn advance(
    conn: &mut PgConnection,
    (tenant, name): (TenantId, &str),
    run: &ScheduleRun,
    next_at: OffsetDateTime,
) -> Result<(), StoreError> {
    let job = match &run.result {
        ScheduleResult::Submitted { job } => Some(*job),
        ScheduleResult::Skipped { .. } | ScheduleResult::Refused { .. } => None,
    };
    sqlx::query!(
        "update schedule set next_at = $2, last = $3, last_job = coalesce($4, last_job) where name = $1",
        name,
        next_at,
        Json(run) as _,
        job.map(|job| job.0)
    )
    .execute(&mut *conn)
    .await?;
    let event = match &run.result {
        ScheduleResult::Submitted { .. } => Event::JobScheduled {
            schedule: name.to_owned(),
            planned_at: Some(run.planned_at),
        },
        ScheduleResult::Skipped { reason } | ScheduleResult::Refused { reason } => {
            Event::ScheduleSkipped {
                name: name.to_owned(),
                planned_at: run.planned_at,
                reason: reason.clone(),
            }
        }
    };
    match job {
        Some(job) => scheduled(conn, (tenant, job), event, run.at).await,
        None => event::append_of_tenant(conn, tenant, event, run.at).await,
    }
}

/// Records a job that a user submitted with the schedule outside of its times. `open` is the result
/// of [`lock_open_job`]: that job stays the last one, so that the rule for overlaps applies to it.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn record_job(
    conn: &mut PgConnection,
    (tenant, name): (TenantId, &str),
    (job, open): (JobId, Option<JobId>),
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    if open.is_none() {
        sqlx::query!(
            "update schedule set last_job = $2 where name = $1",
            name,
            job.0
        )
        .execute(&mut *conn)
        .await?;
    }
    let event = Event::JobScheduled {
        schedule: name.to_owned(),
        planned_at: None,
    };
    scheduled(conn, (tenant, job), event, now).await
}

/// Appends the event of a submitted job.
async fn scheduled(
    conn: &mut PgConnection,
    (tenant, job): (TenantId, JobId),
    event: Event,
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    event::append(conn, &[of_job(now, tenant, job, event)]).await?;
    notify::send(conn, &[NotifyChannel::Events]).await
}
