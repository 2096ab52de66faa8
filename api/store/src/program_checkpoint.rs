//! Checkpoints that users' programs have declared: rows of `checkpoint` with `file_count`.
//!
//! A row is inserted when the node has measured the files, and in a bucket when their content is
//! complete. A row that is pruned stays, not retained, until the node has removed its files.

use crate::artifact::ArtifactWriter;
use crate::checkpoint;
use crate::error::StoreError;
use crate::int_convert::signed;
use crate::limit;
use crate::origin;
use crate::progress;
use muster_model::checkpoint::Checkpoint;
use muster_model::id::JobId;
use muster_model::spec::JobSpec;
use sqlx::PgConnection;
use sqlx::types::Json;
use std::collections::{BTreeMap, BTreeSet};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

/// Time between two reports up to which their records decide their order.
const SAME_TIME: Duration = Duration::SECOND;

/// A checkpoint of a program that is about to be recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct DeclaredCheckpoint {
    pub step: u64,
    /// File or folder below the job's checkpoint folder.
    pub path: String,
    pub bytes: u64,
    pub file_count: u64,
    /// Found by the pattern of the document, and not reported by the program.
    pub is_found: bool,
}

/// What is known once the files were stored.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredContent {
    /// Name of the content in a bucket and its SHA-256.
    pub object: Option<(Uuid, String)>,
    pub metrics: BTreeMap<String, f64>,
}

/// What holds for a checkpoint that a task is about to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckpointAdmission {
    Fits,
    /// It is recorded already.
    Present,
    /// The job has started again since.
    Stale,
    /// The declared path is a folder above or below `path`, a retained checkpoint of the job.
    Overlapping {
        path: String,
    },
}

/// Result of a recorded checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub enum CheckpointRecorded {
    Recorded {
        /// Contents in a bucket that are not needed any more.
        replaced: Vec<Uuid>,
        /// All checkpoints of the job. The node removes the files of pruned ones.
        all: Vec<Checkpoint>,
    },
    /// Nothing was recorded: the job has started again since.
    Stale,
    /// Nothing was recorded: the declared path is a folder above or below `path`, a retained
    /// checkpoint of the job.
    Overlapping { path: String },
}

/// Decides whether a task may store a checkpoint.
///
/// # Errors
/// [`StoreError::Exceeded`] with `job_checkpoints`.
pub async fn admit(
    conn: &mut PgConnection,
    writer: &ArtifactWriter,
    declared: &DeclaredCheckpoint,
) -> Result<CheckpointAdmission, StoreError> {
    if is_stale(conn, writer).await? {
        return Ok(CheckpointAdmission::Stale);
    }
    let all = of_programs(checkpoint::list(conn, writer.job).await?);
    let is_same = |row: &Checkpoint| {
        let (written, program) = (&row.written, row.program.as_ref());
        if written.path != declared.path {
            false
        } else if declared.is_found {
            // The step of a match may be a guess. That of the record stays.
            row.retained
                && written.bytes == declared.bytes
                && program.is_some_and(|program| program.file_count == declared.file_count)
        } else {
            // A restarted daemon repeats reports. A pruned checkpoint is not recorded again.
            (written.step, written.revision) == (declared.step, writer.revision)
        }
    };
    if all.iter().any(is_same) {
        return Ok(CheckpointAdmission::Present);
    }
    if let Some(path) = overlapping(&all, declared) {
        return Ok(CheckpointAdmission::Overlapping { path });
    }
    has_room(conn, writer, declared, &all).await?;
    Ok(CheckpointAdmission::Fits)
}

/// Records a checkpoint, prunes others by the document's policy, and returns all.
///
/// `at` is the time of the report, by which checkpoints are ordered. It is never later than `now`:
/// a clock that is ahead must not make the checkpoint younger. The newest one is never pruned.
///
/// # Errors
/// As [`admit`].
pub async fn record(
    conn: &mut PgConnection,
    writer: &ArtifactWriter,
    declared: &DeclaredCheckpoint,
    content: &StoredContent,
    (at, now): (OffsetDateTime, OffsetDateTime),
) -> Result<CheckpointRecorded, StoreError> {
    // The lock orders the records of a job.
    let spec = sqlx::query_scalar!(
        r#"select spec as "spec: Json<JobSpec>" from job where id = $1 for update"#,
        writer.job.0
    )
    .fetch_one(&mut *conn)
    .await?;
    if is_stale(conn, writer).await? {
        return Ok(CheckpointRecorded::Stale);
    }
    let before = of_programs(checkpoint::list(conn, writer.job).await?);
    if let Some(path) = overlapping(&before, declared) {
        return Ok(CheckpointRecorded::Overlapping { path });
    }
    has_room(conn, writer, declared, &before).await?;
    let own = content.object.as_ref().map(|(object, _)| *object);
    let written_at = in_order(conn, writer.job, at.min(now)).await?;
    let replaced = insert(conn, writer, declared, content, written_at).await?;
    progress::reported_checkpoint(conn, writer.job, declared.step, at.min(now)).await?;
    let mut all = of_programs(checkpoint::list(conn, writer.job).await?);
    let spared = origin::spared_of(conn, writer.job).await?;
    let kept = spec
        .0
        .checkpoint
        .kept_of(all.iter().filter(|one| one.retained));
    let newest = newest(conn, writer.job).await?;
    let mut steps = BTreeSet::new();
    for row in &mut all {
        let step = row.written.step;
        let is_new = Some(row.id.0) == newest;
        // Of two checkpoints of a step the one of the later start stays.
        let is_kept = steps.insert(step) && kept.contains_key(&step);
        row.retained &= is_new || is_kept || spared.contains(&step);
    }
    let pruned = all.iter().filter(|row| !row.retained);
    let pruned: Vec<Uuid> = pruned.map(|row| row.id.0).collect();
    sqlx::query!(
        "update checkpoint set retained = false where id = any($1)",
        &pruned
    )
    .execute(conn)
    .await?;
    Ok(CheckpointRecorded::Recorded {
        replaced: replaced
            .into_iter()
            .filter(|one| Some(*one) != own)
            .collect(),
        all,
    })
}

/// Replaces the row of the path, and of the step in this revision. Returns contents of replaced
/// rows.
async fn insert(
    conn: &mut PgConnection,
    writer: &ArtifactWriter,
    declared: &DeclaredCheckpoint,
    content: &StoredContent,
    written_at: OffsetDateTime,
) -> Result<Vec<Uuid>, StoreError> {
    let replaced = sqlx::query_scalar!(
        "delete from checkpoint
         where job_id = $1 and file_count is not null and (path = $2 or (step = $3 and revision = $4)) returning object",
        writer.job.0,
        declared.path,
        signed(declared.step),
        signed(writer.revision)
    )
    .fetch_all(&mut *conn)
    .await?;
    let (object, sha256) = content.object.clone().unzip();
    let measure = |name: &str| content.metrics.get(name).copied();
    sqlx::query!(
        "insert into checkpoint (tenant_id, job_id, step, epoch, revision, path, bytes, manifest_sha256, files, loss, accuracy,
                                 written_at, object, file_count, metrics)
         values ($1, $2, $3, $4, $5, $6, $7, $8, '{}', $9, $10, $11, $12, $13, $14)",
        writer.tenant.0,
        writer.job.0,
        signed(declared.step),
        measure("epoch").unwrap_or(0.0),
        signed(writer.revision),
        declared.path,
        signed(declared.bytes),
        sha256.unwrap_or_default(),
        measure("test_loss"),
        measure("test_accuracy"),
        written_at,
        object,
        signed(declared.file_count),
        Json(&content.metrics) as _
    )
    .execute(conn)
    .await?;
    Ok(replaced.into_iter().flatten().collect())
}

/// Returns the time of a new row. The age of a report includes the delay of its request, so reports
/// within a second keep the order of their records.
async fn in_order(
    conn: &mut PgConnection,
    job: JobId,
    at: OffsetDateTime,
) -> Result<OffsetDateTime, StoreError> {
    let newest = sqlx::query_scalar!(
        "select max(written_at) from checkpoint where job_id = $1 and file_count is not null",
        job.0
    )
    .fetch_one(conn)
    .await?;
    let newest = newest.filter(|newest| at <= *newest && *newest - at < SAME_TIME);
    Ok(newest.map_or(at, |newest| newest + Duration::MICROSECOND))
}

/// Returns the id of the newest retained checkpoint by time.
async fn newest(conn: &mut PgConnection, job: JobId) -> Result<Option<Uuid>, StoreError> {
    let newest = sqlx::query_scalar!(
        "select id from checkpoint where job_id = $1 and file_count is not null and retained order by written_at desc limit 1",
        job.0
    )
    .fetch_optional(conn)
    .await?;
    Ok(newest)
}

/// Removes the row of a checkpoint whose files are gone: the node has removed them after the
/// checkpoint was pruned, or with `is_lost` the program has removed them itself.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn forget(
    conn: &mut PgConnection,
    writer: &ArtifactWriter,
    (id, is_lost): (Uuid, bool),
) -> Result<(), StoreError> {
    if is_stale(conn, writer).await? {
        return Ok(());
    }
    sqlx::query!(
        "delete from checkpoint where id = $1 and job_id = $2 and file_count is not null and (not retained or $3)",
        id,
        writer.job.0,
        is_lost
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// How the program of a job begins.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgramBeginning {
    /// Its own newest checkpoint, or the checkpoint that its document names.
    pub checkpoint: Option<Checkpoint>,
    /// The job is a trial. It begins from files of another trial that are not registered; its
    /// `from.step` is a place on the budget.
    pub is_trial: bool,
}

/// Returns how the program of a job begins.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn beginning(
    conn: &mut PgConnection,
    job: JobId,
) -> Result<ProgramBeginning, StoreError> {
    let row = sqlx::query!(
        r#"select j.study_id is not null as "is_trial!", first.job_id as "job_id?", first.id as "id?"
           from job j
           left join lateral (
               select c.job_id, c.id from checkpoint c
               where c.tenant_id = j.tenant_id and c.retained and c.file_count is not null
                 and (c.job_id = j.id or (c.job_id = j.origin_job and c.step = j.origin_step and j.study_id is null))
               order by c.job_id = j.id desc, c.written_at desc limit 1
           ) first on true
           where j.id = $1"#,
        job.0
    )
    .fetch_one(&mut *conn)
    .await?;
    // Another start may have another checkpoint of the same step.
    let checkpoint = match row.job_id.zip(row.id) {
        Some((job, id)) => {
            let mut all = checkpoint::list(conn, job.into()).await?.into_iter();
            all.find(|one| one.id.0 == id)
        }
        None => None,
    };
    Ok(ProgramBeginning {
        checkpoint,
        is_trial: row.is_trial,
    })
}

/// Whether the job has tasks of a later revision.
async fn is_stale(conn: &mut PgConnection, writer: &ArtifactWriter) -> Result<bool, StoreError> {
    let is_stale = sqlx::query_scalar!(
        r#"select exists (select from task where job_id = $1 and revision > $2) as "is_stale!""#,
        writer.job.0,
        signed(writer.revision)
    )
    .fetch_one(conn)
    .await?;
    Ok(is_stale)
}

async fn has_room(
    conn: &mut PgConnection,
    writer: &ArtifactWriter,
    declared: &DeclaredCheckpoint,
    all: &[Checkpoint],
) -> Result<(), StoreError> {
    if all.iter().any(|row| row.written.path == declared.path) {
        return Ok(());
    }
    let limits = limit::of(conn, writer.tenant).await?;
    limit::below("job_checkpoints", limits.job_checkpoints, all.len() as u64)
}

/// Returns the path of a retained checkpoint that is a folder above or below the declared path.
fn overlapping(all: &[Checkpoint], declared: &DeclaredCheckpoint) -> Option<String> {
    let is_below = |path: &str, folder: &str| {
        let rest = path.strip_prefix(folder);
        rest.is_some_and(|rest| rest.starts_with('/'))
    };
    let mut paths = all
        .iter()
        .filter(|row| row.retained)
        .map(|row| &row.written.path);
    let found = paths.find(|path| is_below(path, &declared.path) || is_below(&declared.path, path));
    found.cloned()
}

fn of_programs(all: Vec<Checkpoint>) -> Vec<Checkpoint> {
    let all = all.into_iter();
    all.filter(|one| one.program.is_some()).collect()
}
