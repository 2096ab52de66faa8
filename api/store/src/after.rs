//! Jobs that start after others have ended (`after` of the document).
//!
//! Such a job is queued with a `not_before` in the year 9999, so no round considers it. The commit
//! that ends the last of the other jobs removes this time. A submission locks the other jobs, so
//! none of them ends unnoticed between its check and its commit.

use crate::error::StoreError;
use crate::event::{NewEvent, of_job};
use crate::job::not_considered;
use crate::notify::{self, NotifyChannel};
use muster_model::event::Event;
use muster_model::id::{JobId, TenantId};
use muster_model::job::{Intent, JobPhase, JobState};
use muster_model::spec::{AFTER_JOBS_UNIX_MS, After, AfterEnd};
use sqlx::PgConnection;
use sqlx::types::Json;
use std::collections::BTreeMap;
use time::OffsetDateTime;
use uuid::Uuid;

/// A job after which another one starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EarlierJob {
    pub name: String,
    pub phase: JobPhase,
}

/// Returns the time before which no job with unmet conditions starts.
///
/// # Panics
/// Never: the constant is a valid time.
pub(crate) fn after_jobs() -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(AFTER_JOBS_UNIX_MS / 1_000).expect("the year 9999")
}

/// Returns the jobs with these ids in scope, and locks them against a change of their phase.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn lock(
    conn: &mut PgConnection,
    ids: &[JobId],
) -> Result<BTreeMap<JobId, EarlierJob>, StoreError> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let rows = sqlx::query!(
        r#"select id, name, state as "state: Json<JobState>" from job
           where id = any($1) and deleted_at is null order by id for share"#,
        &ids
    )
    .fetch_all(conn)
    .await?;
    let jobs = rows.into_iter().map(|row| {
        let phase = row.state.phase();
        (
            row.id.into(),
            EarlierJob {
                name: row.name,
                phase,
            },
        )
    });
    Ok(jobs.collect())
}

/// Records the conditions of a job that was inserted with them.
pub(crate) async fn insert(
    conn: &mut PgConnection,
    job: JobId,
    tenant: TenantId,
    unmet: &[After],
) -> Result<(), StoreError> {
    let before: Vec<Uuid> = unmet.iter().map(|after| after.job.0).collect();
    let conditions: Vec<String> = unmet
        .iter()
        .map(|after| after.on.as_str().to_owned())
        .collect();
    sqlx::query!(
        "insert into job_after (job_id, tenant_id, before_id, condition)
         select $1, $2, * from unnest($3::uuid[], $4::text[])",
        job.0,
        tenant.0,
        &before,
        &conditions
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Lets jobs start that waited for the end of these jobs, and cancels those that waited for a
/// success which did not come. Returns the events of the cancelled ones.
pub(crate) async fn settle(
    conn: &mut PgConnection,
    ended: &[(JobId, JobPhase)],
    now: OffsetDateTime,
) -> Result<Vec<NewEvent>, StoreError> {
    if ended.is_empty() {
        return Ok(Vec::new());
    }
    let phases: BTreeMap<Uuid, JobPhase> = ended.iter().map(|(id, phase)| (id.0, *phase)).collect();
    let before: Vec<Uuid> = phases.keys().copied().collect();
    let rows = sqlx::query!(
        "with met as (delete from job_after where before_id = any($1) returning job_id, before_id, tenant_id, condition)
         select m.job_id, m.before_id, m.tenant_id, m.condition, b.name from met m join job b on b.id = m.before_id
         order by m.job_id, m.before_id",
        &before
    )
    .fetch_all(&mut *conn)
    .await?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let (mut waiting, mut failed) = (Vec::new(), Vec::new());
    let mut events: Vec<NewEvent> = Vec::new();
    for row in rows {
        let phase = phases[&row.before_id];
        let on = if row.condition == AfterEnd::End.as_str() {
            AfterEnd::End
        } else {
            AfterEnd::Success
        };
        if on.is_met_by(phase) {
            waiting.push(row.job_id);
        } else if !failed.contains(&row.job_id) {
            failed.push(row.job_id);
            let event = Event::AfterFailed {
                job_id: row.before_id.into(),
                name: row.name,
                phase,
            };
            events.push(of_job(now, row.tenant_id.into(), row.job_id.into(), event));
        }
    }
    release(conn, &waiting).await?;
    let cancelled = cancel(conn, &failed, now).await?;
    events.retain(|event| event.job_id.is_some_and(|id| cancelled.contains(&id.0)));
    notify::send(conn, &[NotifyChannel::Rounds]).await?;
    Ok(events)
}

/// Lets the jobs start that have no condition left.
async fn release(conn: &mut PgConnection, waiting: &[Uuid]) -> Result<(), StoreError> {
    sqlx::query!(
        "update job set not_before = null, waiting = case when phase = 'queued' then $2 else waiting end
         where id = any($1) and phase in ('queued', 'paused') and not_before = $3
           and not exists (select from job_after a where a.job_id = job.id)
           and not exists (select from job_array a where a.job_id = job.id and a.held)",
        waiting,
        Json(not_considered()) as _,
        after_jobs()
    )
    .execute(&mut *conn)
    .await?;
    // Jobs that their array still holds.
    sqlx::query!(
        "update job set waiting = jsonb_set(waiting, '{why}', jsonb_build_object('reason', 'waiting_for_array', 'limit', a.parallel))
         from job_array a
         where job.id = any($1) and job.phase = 'queued' and a.job_id = job.id and a.held
           and not exists (select from job_after b where b.job_id = job.id)",
        waiting
    )
    .execute(&mut *conn)
    .await?;
    // The reason of the other jobs names only the jobs for which they still wait.
    sqlx::query!(
        "update job set waiting = jsonb_set(waiting, '{why,jobs}',
             (select jsonb_agg(a.before_id order by a.before_id) from job_after a where a.job_id = job.id))
         where id = any($1) and phase = 'queued' and waiting -> 'why' ->> 'reason' = 'waiting_for_jobs'
           and exists (select from job_after a where a.job_id = job.id)",
        waiting
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns the jobs that were open and not already being cancelled.
async fn cancel(
    conn: &mut PgConnection,
    failed: &[Uuid],
    now: OffsetDateTime,
) -> Result<Vec<Uuid>, StoreError> {
    let ids = sqlx::query_scalar!(
        "update job set intent = $2, intent_by = null, intent_at = $3
         where id = any($1) and phase in ('queued', 'paused') and intent <> $2
         returning id",
        failed,
        Intent::Cancel.as_str(),
        now
    )
    .fetch_all(&mut *conn)
    .await?;
    sqlx::query!("delete from job_after where job_id = any($1)", &ids)
        .execute(conn)
        .await?;
    Ok(ids)
}
