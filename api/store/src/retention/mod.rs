//! Retention: deletes old rows in batches. Each function deletes a bounded number of rows, so that
//! its transaction holds locks for a short time. The caller repeats it.
//!
//! A deleted job is purged in two steps: first the rows that its tasks made ([`empty`]), possibly
//! millions, then its own row ([`remove`]). A row that another row needs is kept: the job of a
//! trial of an existing study, and a job from whose checkpoints another job begins.

mod pass;

pub use pass::{RetentionCounts, RetentionRules, once};

use crate::error::StoreError;
use crate::event::{self, of_job};
use crate::int_convert::unsigned;
use crate::membership::{self, NodeRemovalOutcome};
use crate::notify::{self, NotifyChannel};
use crate::study;
use muster_model::actor::Actor;
use muster_model::event::Event;
use muster_model::id::{JobId, StudyId};
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

/// Name of the actor in events of deletions and removals by retention.
pub const ACTOR: &str = "retention";

/// Maximum number of rows of one table per transaction.
const MOST_ROWS: i64 = 5_000;
const MOST_ROWS_OF_FUNCTION: i32 = 5_000;
/// Maximum number of jobs, studies or nodes per transaction.
const MOST_OWNERS: i64 = 100;
const MOST_USERS: i32 = 100;

fn actor() -> Actor {
    Actor {
        user: ACTOR.to_owned(),
        as_administrator: false,
    }
}

/// Deletes jobs that ended before `before`, like their owners could, and returns their number.
/// Trials are deleted with their study. No job is deleted until `before` is later than the upgrade
/// to the release that introduced this deletion.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn expire_jobs(
    conn: &mut PgConnection,
    before: OffsetDateTime,
    now: OffsetDateTime,
) -> Result<u64, StoreError> {
    let rows = sqlx::query!(
        r#"update job set deleted_at = $2
           where id in (select id from job
                        where finished_at < $1 and deleted_at is null and study_id is null
                          and (select at from retention_begun) < $1
                        order by finished_at limit $3 for no key update skip locked)
           returning id, tenant_id"#,
        before,
        now,
        MOST_OWNERS
    )
    .fetch_all(&mut *conn)
    .await?;
    let events: Vec<_> = rows
        .iter()
        .map(|row| {
            let job_id = row.id.into();
            let by = Some(actor());
            let event = Event::JobDeleted { job_id, by };
            of_job(now, row.tenant_id.into(), job_id, event)
        })
        .collect();
    event::append(conn, &events).await?;
    if !events.is_empty() {
        notify::send(conn, &[NotifyChannel::Events]).await?;
    }
    Ok(events.len() as u64)
}

/// Deletes studies that finished before `before` and whose jobs have all ended, with these jobs.
/// Returns their number. The rule of [`expire_jobs`] about the upgrade applies.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn expire_studies(
    conn: &mut PgConnection,
    before: OffsetDateTime,
    now: OffsetDateTime,
) -> Result<u64, StoreError> {
    let due = sqlx::query_scalar!(
        "select id from study s
         where finished_at < $1 and deleted_at is null
           and (select at from retention_begun) < $1
           and not exists (select from job j where j.study_id = s.id and j.finished_at is null)
           and not exists (select from study_order o where o.study_id = s.id)
         order by finished_at limit $2",
        before,
        MOST_OWNERS
    )
    .fetch_all(&mut *conn)
    .await?;
    let mut deleted = 0;
    for id in due {
        let outcome = study::delete(conn, StudyId::from(id), now).await?;
        deleted += u64::from(outcome == study::StudyOrderOutcome::Done);
    }
    Ok(deleted)
}

/// A deleted job and its position in the order of deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deleted {
    pub id: JobId,
    pub at: OffsetDateTime,
}

/// Returns a batch of jobs that were deleted before `before`, in the order of deletion, starting
/// behind `after`.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn deleted_jobs(
    conn: &mut PgConnection,
    before: OffsetDateTime,
    after: Option<Deleted>,
) -> Result<Vec<Deleted>, StoreError> {
    let rows = sqlx::query!(
        r#"select id, deleted_at as "at!" from job
           where deleted_at < $1 and ($2::timestamptz is null or (deleted_at, id) > ($2, $3::uuid))
           order by deleted_at, id limit $4"#,
        before,
        after.map(|after| after.at),
        after.map(|after| after.id.0),
        MOST_OWNERS
    )
    .fetch_all(conn)
    .await?;
    let jobs = rows.into_iter().map(|row| Deleted {
        id: row.id.into(),
        at: row.at,
    });
    Ok(jobs.collect())
}

/// Deletes at most one batch of rows of one table.
macro_rules! empty_table {
    ($conn:ident, $jobs:ident, $rows:literal) => {
        sqlx::query!($rows, $jobs, MOST_ROWS)
            .execute(&mut *$conn)
            .await?
            .rows_affected()
    };
}

/// Deletes at most one batch of each table of rows of these jobs: samples, logs, tasks,
/// checkpoints, forecasts, events and so on. Returns the number of rows; 0 once none is left. Jobs
/// that are not deleted are ignored.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn empty(conn: &mut PgConnection, jobs: &[JobId]) -> Result<u64, StoreError> {
    let given: Vec<Uuid> = jobs.iter().map(|job| job.0).collect();
    let due = sqlx::query_scalar!(
        "select id from job where id = any($1) and deleted_at is not null",
        &given
    )
    .fetch_all(&mut *conn)
    .await?;
    let due: &[Uuid] = &due;
    let mut rows = 0;
    rows += empty_table!(
        conn,
        due,
        "delete from progress_sample where ctid = any(array(select ctid from progress_sample where job_id = any($1) limit $2))"
    );
    rows += empty_table!(
        conn,
        due,
        "delete from metric_bucket where ctid = any(array(select ctid from metric_bucket where job_id = any($1) limit $2))"
    );
    rows += empty_table!(
        conn,
        due,
        "delete from metric_series where ctid = any(array(select ctid from metric_series where job_id = any($1) limit $2))"
    );
    rows += empty_table!(
        conn,
        due,
        "delete from epoch_loss where ctid = any(array(select ctid from epoch_loss where job_id = any($1) limit $2))"
    );
    rows += empty_table!(
        conn,
        due,
        "delete from evaluation where ctid = any(array(select ctid from evaluation where job_id = any($1) limit $2))"
    );
    rows += empty_table!(
        conn,
        due,
        "delete from speed where ctid = any(array(select ctid from speed where job_id = any($1) limit $2))"
    );
    rows += empty_table!(
        conn,
        due,
        "delete from placed_speed where ctid = any(array(select ctid from placed_speed where job_id = any($1) limit $2))"
    );
    rows += empty_table!(
        conn,
        due,
        "delete from node_speed where ctid = any(array(select ctid from node_speed where job_id = any($1) limit $2))"
    );
    rows += empty_table!(
        conn,
        due,
        "delete from update_time where ctid = any(array(select ctid from update_time where job_id = any($1) limit $2))"
    );
    rows += empty_table!(
        conn,
        due,
        "delete from course_noise where ctid = any(array(select ctid from course_noise where job_id = any($1) limit $2))"
    );
    rows += empty_table!(
        conn,
        due,
        "delete from checkpoint where ctid = any(array(select ctid from checkpoint where job_id = any($1) limit $2))"
    );
    rows += empty_table!(
        conn,
        due,
        "delete from artifact where ctid = any(array(select ctid from artifact where job_id = any($1) limit $2))"
    );
    rows += empty_table!(
        conn,
        due,
        "delete from forecast where ctid = any(array(select ctid from forecast where job_id = any($1) limit $2))"
    );
    rows += empty_table!(
        conn,
        due,
        "delete from node_fault where ctid = any(array(select ctid from node_fault where job_id = any($1) limit $2))"
    );
    rows += empty_table!(
        conn,
        due,
        "delete from task_log where ctid = any(array(
             select l.ctid from task t join task_log l on l.task_id = t.id where t.job_id = any($1) limit $2))"
    );
    rows += empty_table!(
        conn,
        due,
        "delete from allocation where ctid = any(array(
             select a.ctid from task t join allocation a on a.task_id = t.id where t.job_id = any($1) limit $2))"
    );
    rows += empty_table!(
        conn,
        due,
        "delete from task where ctid = any(array(
             select t.ctid from task t
             where t.job_id = any($1)
               and not exists (select from task_log l where l.task_id = t.id)
               and not exists (select from allocation a where a.task_id = t.id)
               and not exists (select from node_fault f where f.task_id = t.id)
             limit $2))"
    );
    rows += empty_table!(
        conn,
        due,
        "delete from artifact_use where ctid = any(array(select ctid from artifact_use where job_id = any($1) limit $2))"
    );
    rows += empty_table!(
        conn,
        due,
        "delete from job_volume where ctid = any(array(select ctid from job_volume where job_id = any($1) limit $2))"
    );
    let events = sqlx::query_scalar!(
        r#"select muster_forget_events_of($1, $2) as "events!""#,
        due,
        MOST_ROWS_OF_FUNCTION
    )
    .fetch_one(conn)
    .await?;
    Ok(rows + unsigned(events))
}

/// Deletes the rows of deleted jobs that [`empty`] has emptied, and returns their number. These
/// rows are kept:
///
/// - the job of a trial, until [`empty_studies`] has deleted the trial;
/// - a job from whose checkpoint another job or a study may still begin;
/// - a job whose files are not erased yet ([`crate::erasure`]).
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn remove(conn: &mut PgConnection, jobs: &[JobId]) -> Result<u64, StoreError> {
    let given: Vec<Uuid> = jobs.iter().map(|job| job.0).collect();
    let due = sqlx::query_scalar!(
        r#"select id from job j
           where id = any($1) and deleted_at is not null
             and erased_at is not null and not muster_is_needed(j.id)
             and not exists (select from study_trial t where t.job_id = j.id)
             and not exists (select from task t where t.job_id = j.id)
           order by id for update"#,
        &given
    )
    .fetch_all(&mut *conn)
    .await?;
    // The documents of these jobs still name their parent.
    sqlx::query!(
        "update job set origin_job = null, origin_step = null where origin_job = any($1)",
        &due
    )
    .execute(&mut *conn)
    .await?;
    let done = sqlx::query!("delete from job where id = any($1)", &due)
        .execute(conn)
        .await?;
    Ok(done.rows_affected())
}

/// Deletes trials, events and orders of studies that were deleted before `before`, at most one
/// batch of each. Returns the number of rows; 0 once none is left.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn empty_studies(
    conn: &mut PgConnection,
    before: OffsetDateTime,
) -> Result<u64, StoreError> {
    let mut rows = 0;
    rows += empty_table!(
        conn,
        before,
        "delete from study_trial where ctid = any(array(
             select t.ctid from study s join study_trial t on t.study_id = s.id where s.deleted_at < $1 limit $2))"
    );
    rows += empty_table!(
        conn,
        before,
        "delete from study_event where ctid = any(array(
             select e.ctid from study s join study_event e on e.study_id = s.id where s.deleted_at < $1 limit $2))"
    );
    rows += empty_table!(
        conn,
        before,
        "delete from study_order where ctid = any(array(
             select o.ctid from study s join study_order o on o.study_id = s.id where s.deleted_at < $1 limit $2))"
    );
    Ok(rows)
}

/// Deletes studies that were deleted before `before` and have neither jobs nor trials, and returns
/// their number.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn remove_studies(
    conn: &mut PgConnection,
    before: OffsetDateTime,
) -> Result<u64, StoreError> {
    let done = sqlx::query!(
        "delete from study where id in (
             select id from study s
             where s.deleted_at < $1
               and not exists (select from job j where j.study_id = s.id)
               and not exists (select from study_trial t where t.study_id = s.id)
               and not exists (select from study_event e where e.study_id = s.id)
             limit $2)",
        before,
        MOST_OWNERS
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

/// Deletes at most one batch of events before `before`, and returns their number; 0 once none is
/// left.
///
/// # Errors
/// [`StoreError::Statement`], also if `before` is within the last hour by Postgres's clock.
pub async fn forget_events(
    conn: &mut PgConnection,
    before: OffsetDateTime,
) -> Result<u64, StoreError> {
    let events = sqlx::query_scalar!(
        r#"select muster_forget_events($1, $2) as "events!""#,
        before,
        MOST_ROWS_OF_FUNCTION
    )
    .fetch_one(conn)
    .await?;
    Ok(unsigned(events))
}

/// Deletes old rows of open jobs: allocations released before `before`, and tasks of earlier
/// revisions released before it, with their logs. Also deletes faults of nodes before `before`. At
/// most one batch of each; returns the number of rows, 0 once none is left. An ended job keeps its
/// tasks until it is purged.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn forget_revisions(
    conn: &mut PgConnection,
    before: OffsetDateTime,
) -> Result<u64, StoreError> {
    let mut rows = empty_table!(
        conn,
        before,
        "delete from allocation where ctid = any(array(
             select ctid from allocation where released_at is not null and released_at < $1 limit $2))"
    );
    rows += empty_table!(
        conn,
        before,
        "delete from node_fault where ctid = any(array(select ctid from node_fault where at < $1 limit $2))"
    );
    let tasks = sqlx::query_scalar!(
        "select t.id from job j join task t on t.job_id = j.id and t.revision < j.revision
         where j.phase not in ('succeeded', 'failed', 'cancelled') and t.released_at < $1
           and not exists (select from node_fault f where f.task_id = t.id)
         limit $2",
        before,
        MOST_OWNERS
    )
    .fetch_all(&mut *conn)
    .await?;
    let freed = sqlx::query!(
        "with gone as (delete from task_log where task_id = any($1) returning task_id, length(data) as bytes),
              sums as (select t.job_id, sum(gone.bytes)::bigint as bytes from gone join task t on t.id = gone.task_id group by t.job_id)
         update job_volume v set log_bytes = greatest(v.log_bytes - sums.bytes, 0) from sums where v.job_id = sums.job_id",
        &tasks
    )
    .execute(&mut *conn)
    .await?;
    rows += freed.rows_affected();
    let gone = sqlx::query!("delete from task where id = any($1)", &tasks)
        .execute(conn)
        .await?;
    Ok(rows + gone.rows_affected())
}

/// Removes nodes that are lost, were last seen before `before` and hold no task, like `muster nodes
/// remove`. Returns their number.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn expire_nodes(
    conn: &mut PgConnection,
    before: OffsetDateTime,
    now: OffsetDateTime,
) -> Result<u64, StoreError> {
    let names = sqlx::query_scalar!(
        "select name from node n
         where state = 'lost' and last_seen_at < $1 and removed_at is null
           and not exists (select from task t where t.node_id = n.id and t.released_at is null)
         order by id limit $2",
        before,
        MOST_OWNERS
    )
    .fetch_all(&mut *conn)
    .await?;
    let mut removed = 0;
    for name in names {
        let outcome = membership::remove(conn, &name, &actor(), now).await?;
        removed += u64::from(outcome == NodeRemovalOutcome::Done);
    }
    Ok(removed)
}

/// Deletes the rows of nodes that were removed before `before` and to which no task refers, and
/// returns their number.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn forget_nodes(
    conn: &mut PgConnection,
    before: OffsetDateTime,
) -> Result<u64, StoreError> {
    let done = sqlx::query!(
        "delete from node where id in (
             select id from node n
             where removed_at < $1 and state = 'lost'
               and not exists (select from task t where t.node_id = n.id)
               and not exists (select from allocation a where a.node_id = n.id)
               and not exists (select from node_fault f where f.node_id = n.id)
             order by id limit $2 for update skip locked)",
        before,
        MOST_OWNERS
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

/// Deletes expired one-time tokens of nodes, and returns their number.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn forget_join_tokens(
    conn: &mut PgConnection,
    now: OffsetDateTime,
) -> Result<u64, StoreError> {
    let done = sqlx::query!("delete from node_join where expires_at <= $1", now)
        .execute(conn)
        .await?;
    Ok(done.rows_affected())
}

/// Deletes users that were created before `before` and have no token, job or study, and returns
/// their number. The next token under the name creates the user again.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn forget_users(
    conn: &mut PgConnection,
    before: OffsetDateTime,
) -> Result<u64, StoreError> {
    let users = sqlx::query_scalar!(
        r#"select muster_forget_users($1, $2) as "users!""#,
        before,
        MOST_USERS
    )
    .fetch_one(conn)
    .await?;
    Ok(unsigned(users))
}
