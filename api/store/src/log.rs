//! Output of tasks. Executors ship it in pieces at byte offsets; pieces that come again are recognised by them.
//!
//! Of a log longer than [`CAP_BYTES`] the newest part is kept, because a run that fails says why at its end.

use crate::error::StoreError;
use crate::number::{signed, unsigned};
use muster_model::id::{JobId, TaskId, TenantId};
use sqlx::PgConnection;

/// Bytes of log kept for one task.
pub const CAP_BYTES: u64 = 16 << 20;

/// A part of a task's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// Of the first byte; later than asked for when what lay before was dropped.
    pub offset: u64,
    pub bytes: Vec<u8>,
    /// Bytes that the log has by now, over its whole life.
    pub end: u64,
}

/// What an appended piece came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Appended {
    Stored,
    /// All of it was there before.
    Repeated,
    /// Stored, and with it the log passed its cap for the first time: from now on its oldest part is dropped.
    Capped,
    /// No such task.
    UnknownTask,
}

/// Appends what is new in the piece. A piece beyond the end is stored where it belongs; what lies between never arrived.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn append(
    conn: &mut PgConnection,
    task: TaskId,
    offset: u64,
    bytes: &[u8],
) -> Result<Appended, StoreError> {
    let Some(row) = sqlx::query!(
        "select tenant_id, log_end from task where id = $1 for no key update",
        task.0
    )
    .fetch_optional(&mut *conn)
    .await?
    else {
        return Ok(Appended::UnknownTask);
    };
    store(
        conn,
        row.tenant_id.into(),
        task,
        unsigned(row.log_end),
        offset,
        bytes,
    )
    .await
}

/// `append` for a caller that holds the task's row and knows where its log ends.
pub(crate) async fn store(
    conn: &mut PgConnection,
    tenant: TenantId,
    task: TaskId,
    known_end: u64,
    offset: u64,
    bytes: &[u8],
) -> Result<Appended, StoreError> {
    let new_end = offset + bytes.len() as u64;
    if new_end <= known_end {
        return Ok(Appended::Repeated);
    }
    let start = offset.max(known_end);
    let new = &bytes[usize::try_from(start - offset).expect("less than the piece")..];
    // A piece above the cap is not split: pieces are far smaller than it.
    sqlx::query!(
        "with kept as (insert into task_log (task_id, start_offset, tenant_id, data) values ($1, $2, $3, $4)),
              dropped as (delete from task_log where task_id = $1 and start_offset + length(data) <= $5)
         update task set log_end = $6 where id = $1",
        task.0,
        signed(start),
        tenant.0,
        new,
        signed(new_end.saturating_sub(CAP_BYTES)),
        signed(new_end)
    )
    .execute(conn)
    .await?;
    Ok(if known_end <= CAP_BYTES && new_end > CAP_BYTES {
        Appended::Capped
    } else {
        Appended::Stored
    })
}

/// Drops output of a job's tasks until this many bytes are left, and returns how many are: first that of older revisions, then what lies
/// farthest from the end of its task's.
///
/// # Errors
/// [`StoreError::Statement`].
pub(crate) async fn trim(
    conn: &mut PgConnection,
    job: JobId,
    most: u64,
) -> Result<u64, StoreError> {
    let left = sqlx::query_scalar!(
        r#"with pieces as (
               select l.task_id, l.start_offset, length(l.data) as bytes,
                      sum(length(l.data)) over (order by t.revision desc, t.log_end - l.start_offset, l.task_id) as newer
               from task t join task_log l on l.task_id = t.id
               where t.job_id = $1
           ), dropped as (
               delete from task_log l using pieces p
               where l.task_id = p.task_id and l.start_offset = p.start_offset and p.newer > $2
           )
           select coalesce(sum(bytes) filter (where newer <= $2), 0)::bigint as "left!" from pieces"#,
        job.0,
        signed(most)
    )
    .fetch_one(conn)
    .await?;
    Ok(unsigned(left))
}

/// At most `max_bytes` from `offset` on. `None` when there is no such task in scope.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn read(
    conn: &mut PgConnection,
    task: TaskId,
    offset: u64,
    max_bytes: u64,
) -> Result<Option<Slice>, StoreError> {
    let Some(end) = sqlx::query_scalar!("select log_end from task where id = $1", task.0)
        .fetch_optional(&mut *conn)
        .await?
    else {
        return Ok(None);
    };
    let end = unsigned(end);
    let rows = sqlx::query!(
        "with first as (
             select greatest($2, min(start_offset)) as at
             from task_log where task_id = $1 and start_offset + length(data) > $2
         )
         select start_offset, data from task_log, first
         where task_id = $1 and start_offset + length(data) > first.at and start_offset < first.at + $3
         order by start_offset",
        task.0,
        signed(offset),
        signed(max_bytes)
    )
    .fetch_all(conn)
    .await?;
    let mut slice = Slice {
        offset: offset.min(end),
        bytes: Vec::new(),
        end,
    };
    let limit = usize::try_from(max_bytes).unwrap_or(usize::MAX);
    for (at, row) in rows.iter().enumerate() {
        let start = unsigned(row.start_offset);
        if at == 0 {
            slice.offset = slice.offset.max(start);
        } else if start != slice.offset + slice.bytes.len() as u64 {
            // What lies between never arrived; the next read begins behind the gap.
            break;
        }
        let skip = usize::try_from((slice.offset + slice.bytes.len() as u64).saturating_sub(start))
            .expect("within the piece");
        let room = limit - slice.bytes.len();
        slice.bytes.extend(row.data[skip..].iter().take(room));
        if slice.bytes.len() == limit {
            break;
        }
    }
    Ok(Some(slice))
}

/// The last `max_bytes`.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn tail(
    conn: &mut PgConnection,
    task: TaskId,
    max_bytes: u64,
) -> Result<Option<Slice>, StoreError> {
    let Some(end) = sqlx::query_scalar!("select log_end from task where id = $1", task.0)
        .fetch_optional(&mut *conn)
        .await?
    else {
        return Ok(None);
    };
    read(
        conn,
        task,
        unsigned(end).saturating_sub(max_bytes),
        max_bytes,
    )
    .await
}
