//! Checkpoints that the coordinators of jobs have reported, and those that users' programs have
//! declared ([`crate::program_checkpoint`]).

use crate::error::StoreError;
use crate::int_convert::{signed, unsigned};
use muster_model::checkpoint::{Checkpoint, ProgramContent, Written};
use muster_model::id::{JobId, TenantId};
use sqlx::PgConnection;
use sqlx::types::Json;
use std::collections::BTreeMap;
use time::OffsetDateTime;
use uuid::Uuid;

struct CheckpointSqlRow {
    id: Uuid,
    job_id: Uuid,
    step: i64,
    epoch: f64,
    revision: i64,
    path: String,
    bytes: i64,
    manifest_sha256: String,
    files: Vec<String>,
    loss: Option<f64>,
    accuracy: Option<f64>,
    retained: bool,
    object: Option<Uuid>,
    file_count: Option<i64>,
    metrics: Option<Json<BTreeMap<String, f64>>>,
}

impl From<CheckpointSqlRow> for Checkpoint {
    fn from(row: CheckpointSqlRow) -> Self {
        Self {
            id: row.id.into(),
            job_id: row.job_id.into(),
            written: Written {
                step: unsigned(row.step),
                epoch: row.epoch,
                revision: unsigned(row.revision),
                path: row.path,
                bytes: unsigned(row.bytes),
                manifest_sha256: row.manifest_sha256,
                files: row.files,
                loss: row.loss,
                accuracy: row.accuracy,
            },
            retained: row.retained,
            program: row.file_count.map(|file_count| ProgramContent {
                object: row.object,
                file_count: unsigned(file_count),
                metrics: row.metrics.map(|metrics| metrics.0).unwrap_or_default(),
            }),
        }
    }
}

/// Stores a checkpoint. Storing the same checkpoint again changes nothing.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn record(
    conn: &mut PgConnection,
    tenant: TenantId,
    job: JobId,
    written: &Written,
    at: OffsetDateTime,
) -> Result<(), StoreError> {
    sqlx::query!(
        "insert into checkpoint (tenant_id, job_id, step, epoch, revision, path, bytes, manifest_sha256, files, loss, accuracy, written_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
         on conflict (job_id, step, revision) do nothing",
        tenant.0,
        job.0,
        signed(written.step),
        written.epoch,
        signed(written.revision),
        written.path,
        signed(written.bytes),
        written.manifest_sha256,
        &written.files,
        written.loss,
        written.accuracy,
        at
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Marks the checkpoint's files as deleted. The row stays.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn prune(conn: &mut PgConnection, job: JobId, step: u64) -> Result<(), StoreError> {
    sqlx::query!(
        "update checkpoint set retained = false where job_id = $1 and step = $2",
        job.0,
        signed(step)
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Deletes a job's rows beyond `most`: first those without files, then the oldest.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn forget(conn: &mut PgConnection, job: JobId, most: u64) -> Result<(), StoreError> {
    sqlx::query!(
        "delete from checkpoint where id in (
             select id from checkpoint where job_id = $1 order by retained desc, step desc, revision desc offset $2)",
        job.0,
        signed(most)
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns the checkpoints of a job, newest first, including pruned ones.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn list(conn: &mut PgConnection, job: JobId) -> Result<Vec<Checkpoint>, StoreError> {
    let rows = sqlx::query_as!(
        CheckpointSqlRow,
        r#"select id, job_id, step, epoch, revision, path, bytes, manifest_sha256, files, loss, accuracy, retained,
                  object, file_count, metrics as "metrics: Json<BTreeMap<String, f64>>"
           from checkpoint where job_id = $1 order by step desc, revision desc"#,
        job.0
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(Checkpoint::from).collect())
}

/// Returns the newest retained checkpoint of each job that was written at or before the given step.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn newest_until(
    conn: &mut PgConnection,
    jobs: &[(JobId, u64)],
) -> Result<BTreeMap<JobId, Checkpoint>, StoreError> {
    let (ids, steps): (Vec<Uuid>, Vec<i64>) =
        jobs.iter().map(|(id, step)| (id.0, signed(*step))).unzip();
    let rows = sqlx::query_as!(
        CheckpointSqlRow,
        r#"select c.id as "id!", c.job_id as "job_id!", c.step as "step!", c.epoch as "epoch!", c.revision as "revision!",
                  c.path as "path!", c.bytes as "bytes!", c.manifest_sha256 as "manifest_sha256!", c.files as "files!", c.loss,
                  c.accuracy, c.retained as "retained!", c.object, c.file_count, c.metrics as "metrics: Json<BTreeMap<String, f64>>"
           from unnest($1::uuid[], $2::bigint[]) as given (job_id, step)
           cross join lateral (
               select * from checkpoint where job_id = given.job_id and step <= given.step and retained
               order by step desc, revision desc limit 1
           ) c"#,
        &ids,
        &steps
    )
    .fetch_all(conn)
    .await?;
    let found = rows.into_iter().map(Checkpoint::from);
    Ok(found.map(|one| (one.job_id, one)).collect())
}

/// Returns the newest checkpoint that was written at `step`.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn get(
    conn: &mut PgConnection,
    job: JobId,
    step: u64,
) -> Result<Option<Checkpoint>, StoreError> {
    let row = sqlx::query_as!(
        CheckpointSqlRow,
        r#"select id, job_id, step, epoch, revision, path, bytes, manifest_sha256, files, loss, accuracy, retained,
                  object, file_count, metrics as "metrics: Json<BTreeMap<String, f64>>"
           from checkpoint where job_id = $1 and step = $2 order by revision desc limit 1"#,
        job.0,
        signed(step)
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(Checkpoint::from))
}
