//! Output of tasks. Executors send it in pieces with byte offsets; the offset identifies a repeated
//! piece.
//!
//! Only the newest [`CAP_BYTES`] of a log are kept, because a failing run reports its reason at the
//! end.

use crate::error::StoreError;
use crate::int_convert::{signed, unsigned};
use muster_model::id::{JobId, TaskId, TenantId};
use sqlx::PgConnection;
use time::OffsetDateTime;

/// Maximum length of the log kept for one task, in bytes.
pub const CAP_BYTES: u64 = 16 << 20;

/// A part of a task's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSlice {
    /// Offset of the first byte. It is later than the requested one if earlier bytes were dropped.
    pub offset: u64,
    pub bytes: Vec<u8>,
    /// Total length of the log so far in bytes, including dropped parts.
    pub end: u64,
    /// Pieces of which the slice consists, in order; not empty unless `bytes` is.
    pub pieces: Vec<StoredPiece>,
}

/// One piece of a slice, as an executor sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredPiece {
    /// Offset of its first byte in the slice.
    pub offset: u64,
    /// `None` if a release that recorded no times has stored it.
    pub received_at: Option<OffsetDateTime>,
}

/// Result of appending a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogAppendOutcome {
    Stored,
    /// The whole piece was already stored.
    Repeated,
    /// Stored. The log passed its cap for the first time: its oldest part is dropped from now on.
    Capped,
    /// There is no such task.
    UnknownTask,
}

/// Appends the new part of a piece. A piece beyond the end is stored at its offset; the bytes in
/// the gap never arrive.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn append(
    conn: &mut PgConnection,
    task: TaskId,
    offset: u64,
    bytes: &[u8],
    now: OffsetDateTime,
) -> Result<LogAppendOutcome, StoreError> {
    let Some(row) = sqlx::query!(
        "select tenant_id, log_end from task where id = $1 for no key update",
        task.0
    )
    .fetch_optional(&mut *conn)
    .await?
    else {
        return Ok(LogAppendOutcome::UnknownTask);
    };
    store(
        conn,
        row.tenant_id.into(),
        task,
        unsigned(row.log_end),
        offset,
        bytes,
        now,
    )
    .await
}

/// Does the same as `append` for a caller that has locked the task's row and knows the log's end.
pub(crate) async fn store(
    conn: &mut PgConnection,
    tenant: TenantId,
    task: TaskId,
    known_end: u64,
    offset: u64,
    bytes: &[u8],
    now: OffsetDateTime,
) -> Result<LogAppendOutcome, StoreError> {
    let new_end = offset + bytes.len() as u64;
    if new_end <= known_end {
        return Ok(LogAppendOutcome::Repeated);
    }
    let start = offset.max(known_end);
    let new = &bytes[usize::try_from(start - offset).expect("less than the piece")..];
    // Pieces are never split at the cap: they are far smaller than it.
    sqlx::query!(
        "with kept as (insert into task_log (task_id, start_offset, tenant_id, data, received_at) values ($1, $2, $3, $4, $7)),
              dropped as (delete from task_log where task_id = $1 and start_offset + length(data) <= $5)
         update task set log_end = $6 where id = $1",
        task.0,
        signed(start),
        tenant.0,
        new,
        signed(new_end.saturating_sub(CAP_BYTES)),
        signed(new_end),
        now
    )
    .execute(conn)
    .await?;
    Ok(if known_end <= CAP_BYTES && new_end > CAP_BYTES {
        LogAppendOutcome::Capped
    } else {
        LogAppendOutcome::Stored
    })
}

/// Drops output of a job's tasks until `most` bytes remain, and returns the number of remaining
/// bytes. Output of older revisions is dropped first, then the output farthest from the end of its
/// task's log.
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

/// Returns at most `max_bytes` from `offset` on; `None` if there is no such task in scope.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn read(
    conn: &mut PgConnection,
    task: TaskId,
    offset: u64,
    max_bytes: u64,
) -> Result<Option<LogSlice>, StoreError> {
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
         select start_offset, data, received_at from task_log, first
         where task_id = $1 and start_offset + length(data) > first.at and start_offset < first.at + $3
         order by start_offset",
        task.0,
        signed(offset),
        signed(max_bytes)
    )
    .fetch_all(conn)
    .await?;
    let mut slice = LogSlice {
        offset: offset.min(end),
        bytes: Vec::new(),
        end,
        pieces: Vec::new(),
    };
    let limit = usize::try_from(max_bytes).unwrap_or(usize::MAX);
    for (at, row) in rows.iter().enumerate() {
        let start = unsigned(row.start_offset);
        if at == 0 {
            slice.offset = slice.offset.max(start);
        } else if start != slice.offset + slice.bytes.len() as u64 {
            // The bytes in between never arrived. The next read starts behind the gap.
            break;
        }
        slice.pieces.push(StoredPiece {
            offset: slice.offset + slice.bytes.len() as u64,
            received_at: row.received_at,
        });
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

/// Returns the offset of the first piece that was stored at this time or later; the log's end if
/// there is none.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn offset_at(
    conn: &mut PgConnection,
    task: TaskId,
    at: OffsetDateTime,
) -> Result<u64, StoreError> {
    let offset = sqlx::query_scalar!(
        r#"select coalesce(min(l.start_offset), max(t.log_end), 0) as "offset!"
           from task t left join task_log l on l.task_id = t.id and l.received_at >= $2
           where t.id = $1"#,
        task.0,
        at
    )
    .fetch_one(conn)
    .await?;
    Ok(unsigned(offset))
}

/// Returns the last `max_bytes` of a log; `None` if there is no such task in scope.
///
/// # Errors
/// [`StoreError::Statement`].
pub async fn tail(
    conn: &mut PgConnection,
    task: TaskId,
    max_bytes: u64,
) -> Result<Option<LogSlice>, StoreError> {
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
