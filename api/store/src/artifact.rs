//! Artifacts of jobs: rows about files that executors keep in the checkpoint store.
//!
//! A row is inserted when its file is complete. So a row always has its file, until the job is
//! deleted. A file without a row is removed with its job.

use crate::error::StoreError;
use crate::int_convert::{signed, signed32, unsigned};
use crate::limit::{self, TenantLimitExceeded};
use crate::page::{self, RowPage};
use crate::secret::AskingNode;
use crate::task::role;
use muster_model::id::{JobId, TaskId, TenantId};
use muster_model::task::Role;
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

/// Task that writes artifacts of its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArtifactWriter {
    pub tenant: TenantId,
    pub job: JobId,
    pub role: Role,
    pub revision: u64,
}

/// Content of an artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactContent {
    /// Name in the store; new with each content.
    pub object: Uuid,
    pub bytes: u64,
    pub sha256: String,
    pub content_type: String,
}

/// A stored artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactRow {
    pub path: String,
    pub content: ArtifactContent,
    pub role: Role,
    pub revision: u64,
    pub stored_at: OffsetDateTime,
}

/// What holds for an artifact that a task is about to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArtifactAdmission {
    /// It may have up to this number of bytes.
    Fits { most_bytes: u64 },
    /// The path has this content already.
    Present,
    /// A task of a later revision has written the path.
    Stale,
    /// The path is a folder of this artifact, or below it.
    Clash { other: String },
}

/// Result of a stored artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArtifactKept {
    /// With the object that is not needed any more.
    Kept { replaced: Option<Uuid> },
    /// Nothing was stored: a task of a later revision has written the path.
    Stale,
    /// Nothing was stored: the path is a folder of this artifact, or below it.
    Clash { other: String },
}

/// Returns the job for which a task writes, for the scheduler. `None` unless the node has this
/// credential and this task, and the job exists. The task may have ended: files are uploaded after
/// its end.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn writer(
    conn: &mut PgConnection,
    node: AskingNode<'_>,
    task: TaskId,
) -> Result<Option<ArtifactWriter>, StoreError> {
    let row = sqlx::query!(
        "select t.tenant_id, t.job_id, t.role, t.role_index, t.revision
         from task t
         join job j on j.id = t.job_id
         join node n on n.id = t.node_id
         where t.id = $1 and j.deleted_at is null
           and n.name = $2 and n.credential_sha256 = $3 and n.removed_at is null",
        task.0,
        node.name,
        node.credential.as_slice()
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| ArtifactWriter {
        tenant: row.tenant_id.into(),
        job: row.job_id.into(),
        role: role(&row.role, row.role_index),
        revision: unsigned(row.revision),
    }))
}

/// Decides whether a task may write an artifact. `sha256` is its digest if it is known already.
///
/// # Errors
/// [`StoreError::Exceeded`] with `job_artifacts`, `job_artifact_bytes` or `artifact_bytes`.
pub async fn admit(
    conn: &mut PgConnection,
    writer: &ArtifactWriter,
    path: &str,
    (bytes, sha256): (u64, Option<&str>),
) -> Result<ArtifactAdmission, StoreError> {
    let present = get(conn, writer.job, path).await?;
    if let Some(present) = &present {
        if present.revision > writer.revision {
            return Ok(ArtifactAdmission::Stale);
        }
        let content = &present.content;
        if sha256 == Some(content.sha256.as_str()) && bytes == content.bytes {
            return Ok(ArtifactAdmission::Present);
        }
    } else if let Some(other) = clash(conn, writer.job, path).await? {
        return Ok(ArtifactAdmission::Clash { other });
    }
    let most_bytes = room(conn, writer, present.as_ref(), bytes).await?;
    Ok(ArtifactAdmission::Fits { most_bytes })
}

/// Returns an artifact beside which a path would be a file and a folder: `a` and `a/b`. A download
/// could not write both.
async fn clash(
    conn: &mut PgConnection,
    job: JobId,
    path: &str,
) -> Result<Option<String>, StoreError> {
    for (end, _) in path.match_indices('/') {
        if let Some(above) = get(conn, job, &path[..end]).await? {
            return Ok(Some(above.path));
        }
    }
    let below = list(conn, job, (&format!("{path}/"), ""), 1).await?;
    Ok(below.rows.into_iter().next().map(|row| row.path))
}

/// Returns the number of bytes that an artifact may have. It replaces `present`. Artifacts of
/// deleted jobs do not count.
async fn room(
    conn: &mut PgConnection,
    writer: &ArtifactWriter,
    present: Option<&ArtifactRow>,
    asked: u64,
) -> Result<u64, StoreError> {
    let limits = limit::of(conn, writer.tenant).await?;
    let used = sqlx::query!(
        r#"select coalesce(sum(u.bytes), 0)::bigint as "all!",
                  coalesce(sum(u.bytes) filter (where u.job_id = $2), 0)::bigint as "of_job!",
                  coalesce(sum(u.files) filter (where u.job_id = $2), 0)::bigint as "files!"
           from artifact_use u
           join job j on j.id = u.job_id
           where u.tenant_id = $1 and j.deleted_at is null"#,
        writer.tenant.0,
        writer.job.0
    )
    .fetch_one(conn)
    .await?;
    if present.is_none() {
        limit::below("job_artifacts", limits.job_artifacts, unsigned(used.files))?;
    }
    let replaced = present.map_or(0, |row| row.content.bytes);
    let bounds = [
        ("job_artifact_bytes", limits.job_artifact_bytes, used.of_job),
        ("artifact_bytes", limits.artifact_bytes, used.all),
    ];
    let mut most_bytes = u64::MAX;
    for (name, most, used) in bounds {
        let used = unsigned(used).saturating_sub(replaced);
        let left = most.saturating_sub(used);
        if asked > left {
            return Err(StoreError::Exceeded(TenantLimitExceeded {
                limit: name.to_owned(),
                most,
                used,
                asked,
            }));
        }
        most_bytes = most_bytes.min(left);
    }
    Ok(most_bytes)
}

/// Stores the row of an artifact whose file is complete, and replaces an earlier one of this path.
///
/// # Errors
/// As [`admit`].
pub async fn keep(
    conn: &mut PgConnection,
    writer: &ArtifactWriter,
    path: &str,
    content: &ArtifactContent,
    now: OffsetDateTime,
) -> Result<ArtifactKept, StoreError> {
    hold(conn, writer.tenant).await?;
    let present = get(conn, writer.job, path).await?;
    // A repeated request after a lost answer.
    if present
        .as_ref()
        .is_some_and(|row| row.content.object == content.object)
    {
        return Ok(ArtifactKept::Kept { replaced: None });
    }
    if present
        .as_ref()
        .is_some_and(|row| row.revision > writer.revision)
    {
        return Ok(ArtifactKept::Stale);
    }
    if present.is_none()
        && let Some(other) = clash(conn, writer.job, path).await?
    {
        return Ok(ArtifactKept::Clash { other });
    }
    room(conn, writer, present.as_ref(), content.bytes).await?;
    let (kind, index) = match writer.role {
        Role::Worker { rank } => ("worker", rank),
        Role::PsShard { index } => ("ps_shard", index),
    };
    sqlx::query!(
        "insert into artifact (job_id, path, tenant_id, object, bytes, sha256, content_type, role, role_index, revision, stored_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
         on conflict (job_id, path) do update
            set object = excluded.object, bytes = excluded.bytes, sha256 = excluded.sha256,
                content_type = excluded.content_type, role = excluded.role, role_index = excluded.role_index,
                revision = excluded.revision, stored_at = excluded.stored_at",
        writer.job.0,
        path,
        writer.tenant.0,
        content.object,
        signed(content.bytes),
        content.sha256,
        content.content_type,
        kind,
        signed32(index),
        signed(writer.revision),
        now
    )
    .execute(&mut *conn)
    .await?;
    let before = present.as_ref().map_or(0, |row| row.content.bytes);
    let files = i64::from(present.is_none());
    count(
        conn,
        writer,
        (files, signed(content.bytes) - signed(before)),
    )
    .await?;
    Ok(ArtifactKept::Kept {
        replaced: present.map(|row| row.content.object),
    })
}

/// Prevents other transactions from changing artifacts of the tenant until this one ends.
async fn hold(conn: &mut PgConnection, tenant: TenantId) -> Result<(), StoreError> {
    sqlx::query!(
        r#"select pg_advisory_xact_lock(hashtextextended($1, 98))::text as "held""#,
        tenant.to_string()
    )
    .fetch_one(conn)
    .await?;
    Ok(())
}

async fn count(
    conn: &mut PgConnection,
    writer: &ArtifactWriter,
    (files, bytes): (i64, i64),
) -> Result<(), StoreError> {
    sqlx::query!(
        "insert into artifact_use as used (job_id, tenant_id, files, bytes) values ($1, $2, greatest($3::bigint, 0), greatest($4::bigint, 0))
         on conflict (job_id) do update set files = used.files + $3, bytes = used.bytes + $4",
        writer.job.0,
        writer.tenant.0,
        files,
        bytes
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Removes the row of an artifact. Returns the object that is not needed any more; `None` if there
/// is no such artifact.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn remove(
    conn: &mut PgConnection,
    writer: &ArtifactWriter,
    path: &str,
) -> Result<Option<Uuid>, StoreError> {
    hold(conn, writer.tenant).await?;
    let gone = sqlx::query!(
        "delete from artifact where job_id = $1 and path = $2 and revision <= $3 returning object, bytes",
        writer.job.0,
        path,
        signed(writer.revision)
    )
    .fetch_optional(&mut *conn)
    .await?;
    let Some(gone) = gone else {
        return Ok(None);
    };
    count(conn, writer, (-1, -gone.bytes)).await?;
    Ok(Some(gone.object))
}

/// Returns a page of a job's artifacts by path: those that begin with `prefix` and follow `after`.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn list(
    conn: &mut PgConnection,
    job: JobId,
    (prefix, after): (&str, &str),
    limit: u32,
) -> Result<RowPage<ArtifactRow>, StoreError> {
    let rows = sqlx::query_as!(
        ArtifactSqlRow,
        "select path, object, bytes, sha256, content_type, role, role_index, revision, stored_at
         from artifact where job_id = $1 and starts_with(path, $2) and path > $3 order by path limit $4",
        job.0,
        prefix,
        after,
        i64::from(limit) + 1
    )
    .fetch(conn);
    page::read(rows, limit, |row: &ArtifactRow| row.path.len() + 300).await
}

/// Returns an artifact.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn get(
    conn: &mut PgConnection,
    job: JobId,
    path: &str,
) -> Result<Option<ArtifactRow>, StoreError> {
    let row = sqlx::query_as!(
        ArtifactSqlRow,
        "select path, object, bytes, sha256, content_type, role, role_index, revision, stored_at
         from artifact where job_id = $1 and path = $2",
        job.0,
        path
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(ArtifactRow::from))
}

struct ArtifactSqlRow {
    path: String,
    object: Uuid,
    bytes: i64,
    sha256: String,
    content_type: String,
    role: String,
    role_index: i32,
    revision: i64,
    stored_at: OffsetDateTime,
}

impl From<ArtifactSqlRow> for ArtifactRow {
    fn from(row: ArtifactSqlRow) -> Self {
        Self {
            path: row.path,
            content: ArtifactContent {
                object: row.object,
                bytes: unsigned(row.bytes),
                sha256: row.sha256,
                content_type: row.content_type,
            },
            role: role(&row.role, row.role_index),
            revision: unsigned(row.revision),
            stored_at: row.stored_at,
        }
    }
}
