//! `POST /jobs/{id}/sessions`.

use super::pump::{OpenSession, end_in};
use super::scheduler::{ClaimError, SchedulerDialer, SchedulerStream};
use super::upgrade::{RemoteUpgrade, switched};
use crate::auth::{Caller, hash};
use crate::body::ParsedBody;
use crate::clock;
use crate::problem::{ApiError, ProblemKind};
use crate::query::{Params, PathParam};
use crate::state::ApiState;
use axum::extract::State;
use axum::response::Response;
use muster_model::error_chain::chain;
use muster_model::id::JobId;
use muster_model::job::JobPhase;
use muster_model::remote::{MAX_HOURS, NewRemoteSession, RemoteEnd, RemoteFrame};
use muster_model::task::{Role, TaskState};
use muster_proto::session::RemotePiece;
use muster_proto::session::remote_piece::Piece;
use muster_store::pool::Transaction;
use muster_store::remote_session::{self, OpenedSession, SessionEnd};
use muster_store::task::{self, Revisions, TaskRow};
use muster_store::{StoreError, job, tenant};
use std::fmt::Write as _;
use std::time::Duration;

/// Longest time from the node's stream to the start of the command.
const START_WITHIN: Duration = Duration::from_secs(10);

/// Open a remote session in a running task
///
/// Runs a command, connects to a port of the task, or copies files. The request has the headers
/// `Connection: Upgrade` and `Upgrade: muster-remote`. After 101, both sides exchange frames: one
/// byte for the kind, four for the length (big endian, at most 64 KiB), the data. Kinds: 1 input,
/// 2 end of input, 3 output, 4 standard error, 5 end of output, 6 size of the terminal, 7 started,
/// 8 ended (JSON of `RemoteEnd`), 9 alive (each side sends it every 15 s), 10 bytes of input that
/// the program has taken (a client has at most 256 KiB of input that was not taken).
///
/// For members of the job's tenant, if an administrator has set `interactive` of the tenant. The
/// history of the job shows each session. 409 if the task does not run, or if its node refuses; for
/// a pod, the refusal names the `kubectl` command.
#[utoipa::path(
    post, path = "/jobs/{id}/sessions", operation_id = "openRemoteSession", tag = "jobs",
    params(
        ("id" = JobId, Path, description = "The job"),
        ("Upgrade" = String, Header, description = "`muster-remote`"),
    ),
    request_body = NewRemoteSession,
    responses((status = 101, description = "The connection carries frames from here on")),
)]
#[tracing::instrument(name = "api.remote.open", skip_all, fields(job.id = %id))]
pub async fn open(
    State(app): State<ApiState>,
    caller: Caller,
    PathParam(id): PathParam<JobId>,
    Params(()): Params<()>,
    upgrade: RemoteUpgrade,
    document: ParsedBody<NewRemoteSession>,
) -> Result<Response, ApiError> {
    let new = document.value;
    let mut tx = app.begin(&caller).await?;
    let task = allowed(&mut tx, &caller, id, new.rank).await?;
    new.validate()
        .map_err(|errors| ApiError::of_fields(ProblemKind::InvalidBody, errors))?;
    let Some(dialer) = app.scheduler.clone() else {
        let detail =
            "the API server has no scheduler_url; an administrator sets MUSTER_API_SCHEDULER_URL";
        return Err(ApiError::new(ProblemKind::NoRemoteSessions, detail));
    };
    let upgrade = upgrade.pending()?;
    let key = key()?;
    let now = clock::now();
    let session = OpenedSession {
        id: clock::new_id().into(),
        tenant: caller.tenant_id,
        job: id,
        task: task.task.id,
        node: task.task.node_id,
        rank: new.rank,
        action: new.action,
        by: caller.actor(),
        key: hash(&key),
        opened_at: now,
        expires_at: now + Duration::from_secs(MAX_HOURS * 3_600),
    };
    remote_session::open(&mut tx, &session).await?;
    tx.commit().await.map_err(StoreError::from)?;
    let scheduler = match started(&dialer, &session, &key).await {
        Ok(scheduler) => scheduler,
        Err(refused) => {
            let message = refused.detail().to_owned();
            let end = SessionEnd {
                end: RemoteEnd::Failed { message },
                input_bytes: 0,
                output_bytes: 0,
            };
            if let Err(error) = end_in(&app, &caller, session.id, &end).await {
                tracing::warn!(
                    error = chain(&error),
                    "the end of a session is not recorded"
                );
            }
            return Err(refused);
        }
    };
    let open = OpenSession {
        app,
        caller,
        id: session.id,
        scheduler,
    };
    tokio::spawn(open.run(upgrade));
    Ok(switched())
}

/// Returns the task, if the caller may open a session in it now.
async fn allowed(
    tx: &mut Transaction,
    caller: &Caller,
    id: JobId,
    rank: u32,
) -> Result<TaskRow, ApiError> {
    let row = job::get(tx, id)
        .await?
        .ok_or_else(|| ApiError::no_job(id))?;
    if caller.actor().as_administrator {
        let detail = format!(
            "only members of tenant {} may open sessions in its tasks; an administrator of another tenant may not",
            caller.tenant_name
        );
        return Err(ApiError::new(ProblemKind::Forbidden, detail));
    }
    let tenant = tenant::get(tx, caller.tenant_id).await?;
    if !tenant.is_some_and(|tenant| tenant.interactive) {
        let name = &caller.tenant_name;
        let detail = format!(
            "remote sessions of tenant {name} are refused; an administrator allows them: `muster tenants interactive {name} allowed`"
        );
        return Err(ApiError::new(ProblemKind::Forbidden, detail));
    }
    let tasks = task::list(tx, id, Revisions::Current).await?;
    let workers = tasks.len();
    let wanted = Role::Worker { rank };
    let task = tasks.into_iter().find(|task| task.task.role == wanted);
    let phase = row.job.state.phase();
    match task {
        Some(task) if task.task.state == TaskState::Running => Ok(task),
        Some(task) => Err(not_running(phase, task.task.state.phase(), rank)),
        None if workers > 0 => {
            let detail =
                format!("the job has no rank {rank} now; `muster show {id}` lists its tasks");
            Err(ApiError::new(ProblemKind::WrongPhase, detail))
        }
        None => Err(not_running(phase, "not there", rank)),
    }
}

fn not_running(phase: JobPhase, task: &str, rank: u32) -> ApiError {
    let remedy = match phase {
        JobPhase::Suspended => "; `muster continue JOB` continues it",
        JobPhase::Paused => "; `muster resume JOB` starts it again",
        JobPhase::Queued | JobPhase::Starting => "; `muster events JOB` shows its progress",
        _ => "",
    };
    let phase = phase.as_str();
    let detail = format!(
        "the job is {phase} and its task of rank {rank} is {task}; a remote session needs a running task{remedy}"
    );
    ApiError::new(ProblemKind::WrongPhase, detail)
}

/// Returns the scheduler's stream once the command has started.
async fn started(
    dialer: &SchedulerDialer,
    session: &OpenedSession,
    key: &str,
) -> Result<SchedulerStream, ApiError> {
    let mut stream = match dialer.claim(session.id, key).await {
        Ok(stream) => stream,
        Err(error @ ClaimError::NoLeader) => {
            return Err(ApiError::new(
                ProblemKind::NoRemoteSessions,
                error.to_string(),
            ));
        }
        Err(error @ ClaimError::Refused(_)) => return Err(refused(&error.to_string())),
    };
    let first = tokio::time::timeout(START_WITHIN, stream.pieces.message()).await;
    let first = first.map_err(|_| refused("the task's node did not start it within 10 s"))?;
    let frame = match first {
        Ok(Some(RemotePiece {
            piece: Some(Piece::Frame(frame)),
        })) => RemoteFrame::decode(&frame),
        Ok(_) => return Err(refused("the task's node closed its stream")),
        Err(status) => return Err(refused(status.message())),
    };
    match frame {
        Ok(RemoteFrame::Started) => Ok(stream),
        Ok(RemoteFrame::Ended(end)) => Err(refused(&end.to_string())),
        _ => Err(refused("the task's node sent a wrong frame")),
    }
}

fn refused(detail: &str) -> ApiError {
    // The node may have chosen the text, and a terminal interprets control characters.
    let detail = detail.replace(|c: char| c.is_control() && c != '\n', "\u{fffd}");
    ApiError::new(ProblemKind::SessionRefused, detail)
}

/// Returns a new key of a session.
fn key() -> Result<String, ApiError> {
    let bytes = clock::secret().map_err(|error| ApiError::internal(&error))?;
    let mut key = String::with_capacity(64);
    for byte in bytes {
        let _ = write!(key, "{byte:02x}");
    }
    Ok(key)
}
