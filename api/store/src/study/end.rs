//! Ends a study that cannot be carried out.

use crate::error::StoreError;
use crate::event::{self, NewEvent};
use crate::job;
use crate::notify::{self, NotifyChannel};
use muster_model::event::Event;
use muster_model::id::StudyId;
use muster_model::job::Intent;
use muster_model::study::StudyOrder;
use sqlx::PgConnection;
use time::OffsetDateTime;

/// Whether an order to cancel the study waits. Other orders are not parsed: they may be the reason
/// why steps fail.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn is_to_be_cancelled(conn: &mut PgConnection, id: StudyId) -> Result<bool, StoreError> {
    let cancel = serde_json::to_string(&StudyOrder::Cancel).expect("an order is JSON");
    let found = sqlx::query_scalar!(
        r#"select exists (select from study_order where study_id = $1 and body::text = $2) as "found!""#,
        id.0,
        cancel
    )
    .fetch_one(conn)
    .await?;
    Ok(found)
}

/// Ends a study as cancelled: its trials fail for the reason `why`, their jobs are cancelled and
/// its orders are dropped. An event of its tenant names the study and the reason. Returns `false`
/// if the study has finished or was deleted.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn end(
    conn: &mut PgConnection,
    id: StudyId,
    why: &str,
    now: OffsetDateTime,
) -> Result<bool, StoreError> {
    let ended = sqlx::query!(
        "update study set phase = 'finished', cancelled = true, finished_at = $2
         where id = $1 and phase <> 'finished' and deleted_at is null
         returning tenant_id, name",
        id.0,
        now
    )
    .fetch_optional(&mut *conn)
    .await?;
    sqlx::query!("delete from study_order where study_id = $1", id.0)
        .execute(&mut *conn)
        .await?;
    let Some(study) = ended else {
        return Ok(false);
    };
    let jobs = sqlx::query_scalar!(
        "update study_trial
         set state = 'failed', failure = coalesce(failure, $3), ended_at = $2, end_fed = true, asked_at = null
         where study_id = $1 and state in ('running', 'waiting', 'stopping')
         returning job_id",
        id.0,
        now,
        why
    )
    .fetch_all(&mut *conn)
    .await?;
    for job in jobs.into_iter().flatten() {
        job::set_intent(conn, job.into(), Intent::Cancel, None, now).await?;
    }
    let message = format!("study {} ({}) has ended: {why}", study.name, id.0);
    let told = NewEvent {
        at: now,
        tenant_id: Some(study.tenant_id.into()),
        job_id: None,
        node_id: None,
        event: Event::Note { message },
    };
    event::append(conn, &[told]).await?;
    notify::send(conn, &[NotifyChannel::Rounds, NotifyChannel::Events]).await?;
    Ok(true)
}
