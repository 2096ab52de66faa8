//! Writes the wait reasons of a plan, all in one statement: on a busy cluster most steps of a plan
//! are wait reasons.

use super::CommitAction;
use super::draft::JobDraft;
use crate::error::StoreError;
use crate::event::NewEvent;
use crate::int_convert::signed;
use muster_model::id::JobId;
use muster_model::wait::Waiting;
use sqlx::PgConnection;
use sqlx::types::Json;
use time::OffsetDateTime;
use uuid::Uuid;

/// Jobs whose wait reason was changed, and the events of these changes.
#[derive(Default)]
pub(super) struct WaitUpdates {
    pub jobs: Vec<JobId>,
    pub events: Vec<NewEvent>,
}

/// Writes the wait reasons of locked jobs, each of which is queued or paused. Unchanged reasons are
/// not written.
pub(super) async fn write(
    conn: &mut PgConnection,
    waits: Vec<(JobDraft, &Waiting)>,
    now: OffsetDateTime,
) -> Result<WaitUpdates, StoreError> {
    let mut updates = WaitUpdates::default();
    let (mut ids, mut revisions, mut values) = (Vec::<Uuid>::new(), Vec::new(), Vec::new());
    for (mut draft, waiting) in waits {
        if draft.waiting.as_ref() == Some(waiting) {
            continue;
        }
        draft
            .apply(
                &CommitAction::Wait {
                    waiting: waiting.clone(),
                },
                now,
            )
            .expect("the job may wait");
        updates.events.append(&mut draft.events);
        updates.jobs.push(draft.id);
        ids.push(draft.id.0);
        revisions.push(signed(draft.revision));
        values.push(Json(waiting));
    }
    if ids.is_empty() {
        return Ok(updates);
    }
    let done = sqlx::query!(
        "update job set waiting = given.waiting
         from unnest($1::uuid[], $2::bigint[], $3::jsonb[]) as given (id, revision, waiting)
         where job.id = given.id and job.revision = given.revision and job.phase in ('queued', 'paused')",
        &ids,
        &revisions,
        &values as _
    )
    .execute(conn)
    .await?;
    assert_eq!(
        done.rows_affected(),
        ids.len() as u64,
        "the rows are locked, so they are as read"
    );
    Ok(updates)
}
