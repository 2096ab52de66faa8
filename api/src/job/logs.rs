//! `GET /jobs/{id}/logs`: output of a task as text.

use super::follow_logs::whole_characters;
use super::tasks;
use crate::auth::Caller;
use crate::problem::{ApiError, ProblemKind};
use crate::query::{FromQuery, Params, PathParam, Query};
use crate::state::ApiState;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use muster_model::id::{JobId, TaskId};
use muster_model::text::log_time;
use muster_store::log::LogSlice;
use muster_store::task::{self, Revisions, TaskRow};
use muster_store::{PgConnection, StoreError, log};
use std::str::FromStr;
use time::OffsetDateTime;

/// Maximum bytes of a log in one answer.
pub const MAX_BYTES: u64 = 1 << 20;

const OFFSET: HeaderName = HeaderName::from_static("muster-log-offset");
const NEXT_OFFSET: HeaderName = HeaderName::from_static("muster-log-next-offset");
const END: HeaderName = HeaderName::from_static("muster-log-end");
const TASK: HeaderName = HeaderName::from_static("muster-log-task");

/// Selection of a task: one process by its id, or a name (`worker-0`, `ps-1`), which selects the
/// process of the newest revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskChoice {
    Process(TaskId),
    Place(String),
}

#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct LogsParams {
    /// Id of a task, or its name (`worker-0`, `ps-1`) in the newest revision. Default: `worker-0`,
    /// the coordinator.
    #[param(value_type = Option<String>, pattern = "^(worker|ps)-[0-9]+$|^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$")]
    pub task: Option<TaskChoice>,
    /// Number of last bytes. Default: 65536 if `offset` is not given either.
    #[param(minimum = 1, maximum = 1048576)]
    pub tail_bytes: Option<u64>,
    /// First byte; the answer has at most 1 MiB.
    pub offset: Option<u64>,
    /// Time (RFC 3339) from which on the output is read, instead of `offset` or `tail_bytes`. It is
    /// the time at which the scheduler received the output, usually within a second of its print.
    #[param(value_type = Option<String>, format = DateTime)]
    pub since: Option<OffsetDateTime>,
    /// `true`: each line begins with the time (RFC 3339, UTC, milliseconds) at which it was
    /// received, or `-` if it is not known, and a space. Offsets count bytes without these times.
    pub timestamps: Option<bool>,
}

impl FromQuery for LogsParams {
    const NAMES: &'static [&'static str] = &["task", "tail_bytes", "offset", "since", "timestamps"];

    fn take(query: &mut Query) -> Self {
        let task = query.one("task", "a task's id, or its name such as worker-0 or ps-1");
        let expected = format!("a whole number from 1 to {MAX_BYTES}");
        let tail_bytes = query.one::<u64>("tail_bytes", &expected);
        if let Some(bytes) = tail_bytes.filter(|bytes| !(1..=MAX_BYTES).contains(bytes)) {
            query.wrong("tail_bytes", &bytes.to_string(), &expected);
        }
        let offset = query.count("offset");
        if let (Some(_), Some(offset)) = (tail_bytes, offset) {
            query.wrong(
                "offset",
                &offset.to_string(),
                "either offset or tail_bytes, not both",
            );
        }
        let since = query.time("since");
        if let (Some(since), Some(_), _) | (Some(since), _, Some(_)) = (since, tail_bytes, offset) {
            let expected = "one of since, offset and tail_bytes";
            query.wrong("since", &since.to_string(), expected);
        }
        Self {
            task,
            tail_bytes,
            offset,
            since,
            timestamps: query.one("timestamps", "true or false"),
        }
    }
}

/// Read a task's log
///
/// The output of the task, standard output and standard error together. Of a log longer than 16 MiB
/// the newest part is stored.
#[utoipa::path(
    get, path = "/jobs/{id}/logs", operation_id = "readLog", tag = "jobs",
    params(("id" = JobId, Path, description = "The job"), LogsParams),
    responses((status = 200, description = "A part of the log", content_type = "text/plain", body = String, headers(
        ("Muster-Log-Task" = String, description = "Id of the task"),
        ("Muster-Log-Offset" = u64, description = "Bytes of the log before this part"),
        ("Muster-Log-Next-Offset" = u64, description = "`offset` of the part that follows"),
        ("Muster-Log-End" = u64, description = "Present length of the log in bytes"),
    ))),
)]
pub async fn logs(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<JobId>,
    Params(params): Params<LogsParams>,
) -> Result<Response, ApiError> {
    let mut tx = app.begin(&caller).await?;
    tasks::must_exist(&mut tx, id).await?;
    let choice = params.task.unwrap_or_else(TaskChoice::chief);
    let Some(task) = find(&mut tx, id, &choice).await? else {
        return Err(missing(id, &choice));
    };
    let offset = match params.since {
        Some(since) => Some(log::offset_at(&mut tx, task.task.id, since).await?),
        None => params.offset,
    };
    let slice = match offset {
        Some(offset) => log::read(&mut tx, task.task.id, offset, MAX_BYTES).await?,
        None => log::tail(&mut tx, task.task.id, params.tail_bytes.unwrap_or(64 << 10)).await?,
    };
    let mut slice = slice.ok_or_else(|| missing(id, &choice))?;
    let text = if params.timestamps == Some(true) {
        if slice.offset + (slice.bytes.len() as u64) < slice.end {
            // A time between the bytes of a character would break it.
            slice.bytes.truncate(whole_characters(&slice.bytes));
        }
        let begins_line = begins_line(&mut tx, task.task.id, slice.offset).await?;
        with_times(&slice, begins_line)
    } else {
        slice.bytes.clone()
    };
    let next = slice.offset + slice.bytes.len() as u64;
    let id = HeaderValue::from_str(&task.task.id.to_string()).expect("a UUID is ASCII");
    let headers = [
        (
            CONTENT_TYPE,
            HeaderValue::from_static("text/plain; charset=utf-8"),
        ),
        (
            HeaderName::from_static("x-content-type-options"),
            HeaderValue::from_static("nosniff"),
        ),
        (TASK, id),
        (OFFSET, HeaderValue::from(slice.offset)),
        (NEXT_OFFSET, HeaderValue::from(next)),
        (END, HeaderValue::from(slice.end)),
    ];
    Ok((headers, text).into_response())
}

/// Whether a line begins at this offset, as far as the byte before it is stored.
async fn begins_line(
    conn: &mut PgConnection,
    task: TaskId,
    offset: u64,
) -> Result<bool, StoreError> {
    let Some(before) = offset.checked_sub(1) else {
        return Ok(true);
    };
    let slice = log::read(conn, task, before, 1).await?;
    Ok(slice.is_none_or(|slice| slice.offset != before || slice.bytes == b"\n"))
}

/// Returns the text with the time of each line before it.
fn with_times(slice: &LogSlice, begins_line: bool) -> Vec<u8> {
    let mut text = Vec::with_capacity(slice.bytes.len() * 2);
    let mut at_line_start = begins_line;
    for (index, piece) in slice.pieces.iter().enumerate() {
        let end = slice.pieces.get(index + 1).map(|next| next.offset);
        let end = end.unwrap_or(slice.offset + slice.bytes.len() as u64);
        let range = [piece.offset, end].map(|offset| (offset - slice.offset) as usize);
        let time = log_time(piece.received_at);
        for line in slice.bytes[range[0]..range[1]].split_inclusive(|byte| *byte == b'\n') {
            if at_line_start {
                text.extend_from_slice(time.as_bytes());
                text.push(b' ');
            }
            text.extend_from_slice(line);
            at_line_start = line.ends_with(b"\n");
        }
    }
    text
}

/// Returns the newest selected task.
pub(super) async fn find(
    conn: &mut PgConnection,
    job: JobId,
    choice: &TaskChoice,
) -> Result<Option<TaskRow>, StoreError> {
    Ok(all(conn, job, choice).await?.into_iter().next())
}

/// Returns all selected tasks, the newest first.
pub(super) async fn all(
    conn: &mut PgConnection,
    job: JobId,
    choice: &TaskChoice,
) -> Result<Vec<TaskRow>, StoreError> {
    let mut tasks = task::list(conn, job, Revisions::All).await?;
    tasks.retain(|row| match choice {
        TaskChoice::Process(id) => row.task.id == *id,
        TaskChoice::Place(name) => row.task.role.to_string() == *name,
    });
    Ok(tasks)
}

pub(super) fn missing(job: JobId, choice: &TaskChoice) -> ApiError {
    let what = match choice {
        TaskChoice::Process(id) => id.to_string(),
        TaskChoice::Place(name) => name.clone(),
    };
    ApiError::new(
        ProblemKind::NotFound,
        format!("job {job} has no task {what}; its tasks appear once it has started"),
    )
}

impl TaskChoice {
    #[must_use]
    pub fn chief() -> Self {
        Self::Place("worker-0".to_owned())
    }
}

impl FromStr for TaskChoice {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if let Ok(id) = text.parse() {
            return Ok(Self::Process(id));
        }
        let (role, index) = text.rsplit_once('-').ok_or(())?;
        let index: u32 = index.parse().map_err(|_| ())?;
        match role {
            "worker" | "ps" => Ok(Self::Place(format!("{role}-{index}"))),
            _ => Err(()),
        }
    }
}
