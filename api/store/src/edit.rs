//! Edit of a job's document by its owner. The store reads it under a lock, the caller checks it,
//! and the store writes it with its event.

use crate::error::StoreError;
use crate::event::{self, of_job};
use crate::int_convert::{signed, unsigned};
use crate::job::intent;
use crate::limit;
use crate::notify::{self, NotifyChannel};
use muster_model::actor::Actor;
use muster_model::event::Event;
use muster_model::id::{JobId, StudyId, TenantId};
use muster_model::job::{Intent, JobPhase, JobState};
use muster_model::spec::{JobSpec, Range};
use sqlx::PgConnection;
use sqlx::types::Json;
use time::OffsetDateTime;

/// A job whose row stays locked against other writers until the transaction ends.
#[derive(Debug, Clone, PartialEq)]
pub struct LockedJob {
    pub id: JobId,
    pub tenant_id: TenantId,
    pub spec: JobSpec,
    pub intent: Intent,
    pub phase: JobPhase,
    /// Number of edits so far.
    pub edits: u64,
    /// The study whose trial this job is.
    pub study: Option<StudyId>,
}

/// Locks and returns the job. Returns `None` if the job is not in scope or was deleted.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn begin(conn: &mut PgConnection, id: JobId) -> Result<Option<LockedJob>, StoreError> {
    let row = sqlx::query!(
        r#"select tenant_id, spec as "spec: Json<JobSpec>", intent, state as "state: Json<JobState>", edits, study_id from job
           where id = $1 and deleted_at is null for no key update"#,
        id.0
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| LockedJob {
        id,
        tenant_id: row.tenant_id.into(),
        spec: row.spec.0,
        intent: intent(&row.intent),
        phase: row.state.phase(),
        edits: unsigned(row.edits),
        study: row.study_id.map(StudyId::from),
    }))
}

/// Writes the edited document and wakes the next round, which applies it.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn write(
    conn: &mut PgConnection,
    editing: &LockedJob,
    spec: &JobSpec,
    by: Option<&Actor>,
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    let done = sqlx::query!(
        "update job set spec = $2, priority = $3, edits = edits + 1, document_bytes = $4 where id = $1",
        editing.id.0,
        Json(spec) as _,
        spec.priority(),
        signed(limit::document_bytes(spec))
    )
    .execute(&mut *conn)
    .await?;
    assert_eq!(done.rows_affected(), 1, "the row is locked");
    let edited = Event::JobEdited {
        edits: editing.edits + 1,
        workers: spec.scale.workers,
        ps_shards: Some(spec.ps_shards()).filter(|range| *range != Range::NONE),
        priority: spec.priority(),
        priority_class: spec.priority_class.clone(),
        former_priority_class: editing
            .spec
            .priority_class
            .clone()
            .filter(|former| spec.priority_class.as_ref() != Some(former)),
        by: by.cloned(),
    };
    event::append(conn, &[of_job(now, editing.tenant_id, editing.id, edited)]).await?;
    notify::send(conn, &[NotifyChannel::Rounds, NotifyChannel::Events]).await
}
