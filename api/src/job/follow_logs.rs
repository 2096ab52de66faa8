//! `GET /jobs/{id}/logs/stream`: a log as it grows. A task name (`worker-0`) is followed through
//! the job's revisions, so that a resize does not end the stream.

use super::logs::{self, TaskChoice};
use crate::auth::Caller;
use crate::problem::ApiError;
use crate::query::{FromQuery, Params, PathParam, Query};
use crate::state::ApiState;
use crate::stream::{self, StreamClient, StreamClosed};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use muster_model::id::{JobId, TaskId};
use muster_model::view::{LogEnd, LogPiece, name};
use muster_store::job;
use muster_store::log::{self, LogSlice};
use muster_store::task::TaskRow;
use std::fmt;
use std::str::FromStr;

/// Maximum bytes of a log in one message.
const PIECE: u64 = 32 << 10;

/// Position of a reader: `task@offset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPosition {
    pub task: TaskId,
    pub offset: u64,
}

#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct FollowParams {
    /// Id of a task, or its name (`worker-0`, `ps-1`). A name is followed through all later
    /// revisions. Default: `worker-0`, the coordinator.
    #[param(value_type = Option<String>, pattern = "^(worker|ps)-[0-9]+$|^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$")]
    pub task: Option<TaskChoice>,
    /// First byte of the present task's log. Default: its last 64 KiB.
    pub offset: Option<u64>,
}

impl FromQuery for FollowParams {
    const NAMES: &'static [&'static str] = &["task", "offset"];

    fn take(query: &mut Query) -> Self {
        let task = query.one("task", "a task's id, or its name such as worker-0 or ps-1");
        Self {
            task,
            offset: query.count("offset"),
        }
    }
}

/// Follow a task's log
///
/// Server-sent events: `log` (LogPiece) for each piece, `task_end` (LogEnd) when a task has ended
/// and the stream follows its successor, and `end` (LogEnd) when nothing can follow. The `id:` of a
/// message is the position of the reader. A client that reconnects with it as `Last-Event-ID`
/// receives each piece exactly once.
#[utoipa::path(
    get, path = "/jobs/{id}/logs/stream", operation_id = "followLog", tag = "streams",
    params(
        ("id" = JobId, Path, description = "The job"), FollowParams,
        ("Last-Event-ID" = Option<String>, Header, description = "Id of the last received message; precedes `offset`"),
    ),
    responses((status = 200, description = "A stream that ends with the job", content_type = "text/event-stream", body = String)),
)]
pub async fn follow_logs(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<JobId>,
    Params(params): Params<FollowParams>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let choice = params.task.unwrap_or_else(TaskChoice::chief);
    let mut tx = app.begin(&caller).await?;
    super::tasks::must_exist(&mut tx, id).await?;
    if let (TaskChoice::Process(_), None) = (&choice, logs::find(&mut tx, id, &choice).await?) {
        return Err(logs::missing(id, &choice));
    }
    drop(tx);
    let from = stream::position::<LogPosition>(&headers, None)?;
    let offset = params.offset;
    stream::answer(&app, &caller, move |client| {
        follow(client, id, choice, from, offset)
    })
}

/// Result of one poll.
struct LogPoll {
    /// The task that is followed; `None` before the first one is placed.
    task: Option<TaskRow>,
    slice: Option<LogSlice>,
    /// The next task of the same name, if it exists.
    successor: Option<TaskId>,
    job_ended: bool,
}

async fn follow(
    mut client: StreamClient,
    id: JobId,
    choice: TaskChoice,
    mut at: Option<LogPosition>,
    first_offset: Option<u64>,
) -> Result<(), StreamClosed> {
    loop {
        let poll = poll(&client, id, &choice, at, first_offset).await?;
        let mut read_on = false;
        if let (Some(task), Some(slice)) = (&poll.task, poll.slice) {
            let released = task.task.state.is_released();
            let end = slice.end;
            let position = send(&client, task, slice, released).await?;
            let all_read = position.offset >= end;
            read_on = !all_read;
            at = Some(position);
            // The log of a released task is complete: its executor reports the end after the rest
            // of the log.
            if released && all_read {
                if let Some(successor) = poll.successor {
                    let reason = format!("{} {}", task.task.role, ending(task));
                    let ended = LogEnd { reason };
                    let next = LogPosition {
                        task: successor,
                        offset: 0,
                    };
                    // With the position of the successor, so that a reconnecting client does not
                    // get the message twice.
                    client.send(name::TASK_END, &next, &ended).await?;
                    at = Some(next);
                    continue;
                }
                if poll.job_ended || matches!(choice, TaskChoice::Process(_)) {
                    let reason = format!("{} {}", task.task.role, ending(task));
                    return client.send(name::END, &position, &LogEnd { reason }).await;
                }
            }
        } else if poll.job_ended {
            let reason = "the job ended without such a task".to_owned();
            return client.send(name::END, &"", &LogEnd { reason }).await;
        }
        if !read_on {
            client.woken().await?;
        }
    }
}

async fn poll(
    client: &StreamClient,
    id: JobId,
    choice: &TaskChoice,
    at: Option<LogPosition>,
    first_offset: Option<u64>,
) -> Result<LogPoll, StreamClosed> {
    client
        .read(async || {
            let mut tx = client.app().begin(client.caller()).await?;
            // The job is read first: if it has ended, the following reads are complete.
            let job_ended = job::get(&mut tx, id)
                .await?
                .is_none_or(|row| row.job.state.phase().is_terminal());
            let chosen = logs::all(&mut tx, id, choice).await?;
            let task = match at {
                Some(position) if chosen.iter().all(|row| row.task.id != position.task) => {
                    logs::find(&mut tx, id, &TaskChoice::Process(position.task)).await?
                }
                Some(position) => chosen
                    .iter()
                    .find(|row| row.task.id == position.task)
                    .cloned(),
                None => chosen.first().cloned(),
            };
            let slice = match (&task, at) {
                (Some(task), Some(position)) => {
                    log::read(&mut tx, task.task.id, position.offset, PIECE).await?
                }
                (Some(task), None) => match first_offset {
                    Some(offset) => log::read(&mut tx, task.task.id, offset, PIECE).await?,
                    None => log::tail(&mut tx, task.task.id, 64 << 10).await?,
                },
                (None, _) => None,
            };
            Ok(LogPoll {
                successor: task.as_ref().and_then(|row| next(&chosen, row)),
                task,
                slice,
                job_ended,
            })
        })
        .await
}

/// Returns the task that was started after it, among the chosen ones. A resize in place takes a
/// task into a new revision, which is not a start.
fn next(chosen: &[TaskRow], followed: &TaskRow) -> Option<TaskId> {
    let later = chosen
        .iter()
        .filter(|row| row.task.revision > followed.task.revision);
    let next = later.min_by_key(|row| row.task.revision);
    next.map(|row| row.task.id)
}

/// Sends a piece without an incomplete character at its end, and returns the reader's new position.
async fn send(
    client: &StreamClient,
    row: &TaskRow,
    slice: LogSlice,
    last: bool,
) -> Result<LogPosition, StreamClosed> {
    let cut = if last {
        slice.bytes.len()
    } else {
        whole_characters(&slice.bytes)
    };
    let next_offset = slice.offset + cut as u64;
    let position = LogPosition {
        task: row.task.id,
        offset: next_offset,
    };
    if cut > 0 {
        let piece = LogPiece {
            task_id: row.task.id,
            task: row.task.role.to_string(),
            revision: row.task.revision,
            offset: slice.offset,
            next_offset,
            received_at: slice.pieces.first().and_then(|piece| piece.received_at),
            text: String::from_utf8_lossy(&slice.bytes[..cut]).into_owned(),
        };
        client.send(name::LOG, &position, &piece).await?;
    }
    Ok(position)
}

pub(super) fn whole_characters(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        // An invalid byte earlier hides the end: at most the last three bytes can begin a
        // character.
        Err(_) => {
            let start = bytes.len().saturating_sub(3);
            let open = (start..bytes.len()).find(|at| {
                std::str::from_utf8(&bytes[*at..])
                    .is_err_and(|e| e.valid_up_to() == 0 && e.error_len().is_none())
            });
            open.unwrap_or(bytes.len())
        }
        Ok(_) => bytes.len(),
    }
}

fn ending(row: &TaskRow) -> String {
    match &row.task.state {
        muster_model::task::TaskState::Released { outcome } => outcome.to_string(),
        _ => "ended".to_owned(),
    }
}

impl fmt::Display for LogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.task, self.offset)
    }
}

impl FromStr for LogPosition {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (task, offset) = text.split_once('@').ok_or(())?;
        let offset = offset
            .parse()
            .ok()
            .filter(|offset: &u64| i64::try_from(*offset).is_ok())
            .ok_or(())?;
        Ok(Self {
            task: task.parse().map_err(|_| ())?,
            offset,
        })
    }
}
