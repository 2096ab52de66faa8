//! Measurements for packing, of jobs with one worker: GPU use, speed, and failures beside other
//! jobs.

use crate::error::StoreError;
use crate::int_convert::unsigned;
use crate::progress::unix_ms;
use muster_model::id::{JobId, NodeId, TaskId};
use muster_model::packing::{Company, Hurt, Measured, UsageReport};
use sqlx::PgConnection;
use sqlx::types::Json;
use time::OffsetDateTime;
use uuid::Uuid;

/// Time after the separation of a pair in which a failure still counts as a failure beside the
/// other job, in ms. Damage by the other job's memory use shows late.
const AFTER_MS: i64 = 5_000;

/// Stores GPU measurements of a node's tasks. They are kept only for jobs of one task; measurements
/// of other jobs and of released tasks are dropped.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn record(
    conn: &mut PgConnection,
    node: NodeId,
    told: &[(TaskId, UsageReport)],
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    let ids: Vec<Uuid> = told.iter().map(|(id, _)| id.0).collect();
    let rows = sqlx::query!(
        r#"select t.id, j.id as job_id, j.revision, j.measured as "measured: Json<Measured>",
                  company.job_id as "beside?", company.since as "since?"
           from task t
           join job j on j.id = t.job_id and j.revision = t.revision
           left join lateral muster_company(t.id) company on true
           where t.id = any($1) and t.node_id = $2 and t.released_at is null
             and not exists (select from task o where o.job_id = j.id and o.id <> t.id and (o.released_at is null or o.revision = j.revision))
           order by j.id
           for no key update of j"#,
        &ids,
        node.0
    )
    .fetch_all(&mut *conn)
    .await?;
    for row in rows {
        let Some((_, report)) = told.iter().find(|(id, _)| id.0 == row.id) else {
            continue;
        };
        let known = row.measured.map(|known| known.0).unwrap_or_default();
        let mut known = known.in_revision(unsigned(row.revision));
        known.take_usage(report, company(row.beside, row.since), unix_ms(now));
        keep(conn, row.job_id.into(), &known).await?;
    }
    Ok(())
}

/// Converts the row that the SQL function `muster_company` returns.
pub(crate) fn company(job: Option<Uuid>, since: Option<OffsetDateTime>) -> Option<Company> {
    Some(Company {
        job: job?.into(),
        since_ms: unix_ms(since?),
    })
}

/// Marks the measurement as interrupted, because the job was suspended: the next one would span
/// that time. The caller has locked the job's row.
pub(crate) async fn unsettle(
    conn: &mut PgConnection,
    job: JobId,
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    if let Some(mut known) = measured(conn, job).await? {
        known.unsettle(unix_ms(now));
        keep(conn, job, &known).await?;
    }
    Ok(())
}

/// Handles a failure or kill of the job. If it happened beside another job or right after, the job
/// is not packed again with it and the failure is not charged. Returns whether that is the case.
/// The caller has locked the job's row.
pub(crate) async fn failed(
    conn: &mut PgConnection,
    job: JobId,
    revision: u64,
    company: Option<Company>,
    now: OffsetDateTime,
) -> Result<bool, StoreError> {
    let Some(known) = measured(conn, job).await? else {
        return Ok(false);
    };
    let mut known = known.in_revision(revision);
    let parted = known.together.iter().rev();
    let parted = parted.filter(|pair| unix_ms(now).saturating_sub(pair.last_ms) <= AFTER_MS);
    let beside = company
        .map(|one| one.job)
        .or(parted.map(|pair| pair.job).next());
    let Some(beside) = beside else {
        return Ok(false);
    };
    known.hurt = Some(Hurt { revision, beside });
    keep(conn, job, &known).await?;
    Ok(true)
}

pub(crate) async fn measured(
    conn: &mut PgConnection,
    job: JobId,
) -> Result<Option<Measured>, StoreError> {
    let row = sqlx::query_scalar!(
        r#"select measured as "measured: Json<Measured>" from job where id = $1"#,
        job.0
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.flatten().map(|known| known.0))
}

pub(crate) async fn keep(
    conn: &mut PgConnection,
    job: JobId,
    known: &Measured,
) -> Result<(), StoreError> {
    sqlx::query!(
        "update job set measured = $2 where id = $1",
        job.0,
        Json(known) as _
    )
    .execute(conn)
    .await?;
    Ok(())
}
