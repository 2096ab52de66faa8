//! What users and studies want of a job: its intent, and its deletion.

use super::intent;
use crate::error::StoreError;
use crate::event::{self, of_job};
use crate::notify::{self, NotifyChannel};
use muster_model::actor::Actor;
use muster_model::event::Event;
use muster_model::id::{JobId, TenantId};
use muster_model::job::{Intent, JobPhase, JobState};
use sqlx::PgConnection;
use sqlx::types::Json;
use time::OffsetDateTime;

/// Result of a change of intent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntentOutcome {
    Changed,
    /// The job already had this intent.
    Unchanged,
    /// Refused: the job has ended, or is being cancelled, which is final.
    Refused {
        phase: JobPhase,
        intent: Intent,
    },
    /// Refused: the caller's condition on phase and intent does not hold.
    Unfit {
        phase: JobPhase,
    },
    NotFound,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteOutcome {
    Deleted,
    /// Only ended jobs can be deleted.
    NotEnded {
        phase: JobPhase,
    },
    NotFound,
}

/// A job that is locked against changes.
struct LockedJob {
    tenant: TenantId,
    intent: Intent,
    phase: JobPhase,
}

/// Locks a job; `None` if it does not exist.
async fn lock(conn: &mut PgConnection, id: JobId) -> Result<Option<LockedJob>, StoreError> {
    let row = sqlx::query!(
        r#"select tenant_id, intent, state as "state: Json<JobState>" from job
           where id = $1 and deleted_at is null for no key update"#,
        id.0
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| LockedJob {
        tenant: row.tenant_id.into(),
        intent: intent(&row.intent),
        phase: row.state.phase(),
    }))
}

/// Changes the intent of a job and wakes the next round, which applies it. `by` is `None` if a
/// study changes it.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn set_intent(
    conn: &mut PgConnection,
    id: JobId,
    wanted: Intent,
    by: Option<&Actor>,
    now: OffsetDateTime,
) -> Result<IntentOutcome, StoreError> {
    set_intent_where(conn, id, wanted, |_, _| true, by, now).await
}

/// Does the same as [`set_intent`] for a job whose phase and present intent satisfy `fits`.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn set_intent_where(
    conn: &mut PgConnection,
    id: JobId,
    wanted: Intent,
    fits: fn(JobPhase, Intent) -> bool,
    by: Option<&Actor>,
    now: OffsetDateTime,
) -> Result<IntentOutcome, StoreError> {
    let Some(job) = lock(conn, id).await? else {
        return Ok(IntentOutcome::NotFound);
    };
    let (intent, phase) = (job.intent, job.phase);
    if phase.is_terminal() || (intent == Intent::Cancel && wanted != Intent::Cancel) {
        return Ok(IntentOutcome::Refused { phase, intent });
    }
    if intent == wanted {
        return Ok(IntentOutcome::Unchanged);
    }
    if !fits(phase, intent) {
        return Ok(IntentOutcome::Unfit { phase });
    }
    let done = sqlx::query!(
        "update job set intent = $2, intent_by = $3, intent_at = $4 where id = $1",
        id.0,
        wanted.as_str(),
        by.map(Json) as _,
        now
    )
    .execute(&mut *conn)
    .await?;
    assert_eq!(done.rows_affected(), 1, "the row is locked");
    let event = Event::IntentChanged {
        intent: wanted,
        by: by.cloned(),
    };
    event::append(conn, &[of_job(now, job.tenant, id, event)]).await?;
    notify::send(conn, &[NotifyChannel::Rounds, NotifyChannel::Events]).await?;
    Ok(IntentOutcome::Changed)
}

/// Hides a job that has ended. Its history remains for audits until [`crate::retention`] removes
/// it.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn delete(
    conn: &mut PgConnection,
    id: JobId,
    by: Option<&Actor>,
    now: OffsetDateTime,
) -> Result<DeleteOutcome, StoreError> {
    let Some(job) = lock(conn, id).await? else {
        return Ok(DeleteOutcome::NotFound);
    };
    if !job.phase.is_terminal() {
        return Ok(DeleteOutcome::NotEnded { phase: job.phase });
    }
    let done = sqlx::query!("update job set deleted_at = $2 where id = $1", id.0, now)
        .execute(&mut *conn)
        .await?;
    assert_eq!(done.rows_affected(), 1, "the row is locked");
    let event = Event::JobDeleted {
        job_id: id,
        by: by.cloned(),
    };
    event::append(conn, &[of_job(now, job.tenant, id, event)]).await?;
    notify::send(conn, &[NotifyChannel::Events]).await?;
    Ok(DeleteOutcome::Deleted)
}
