//! The two directions between the client's connection and the scheduler's stream. Each frame is
//! read only when the other side has taken the one before.

use super::scheduler::SchedulerStream;
use crate::auth::Caller;
use crate::clock;
use crate::state::ApiState;
use muster_connections::{PendingUpgrade, UpgradedStream};
use muster_model::error_chain::chain;
use muster_model::id::RemoteSessionId;
use muster_model::remote::{
    FrameError, HEADER_BYTES, RemoteEnd, RemoteFrame, frame_bytes, is_ended, payload,
};
use muster_proto::session::RemotePiece;
use muster_proto::session::remote_piece::Piece;
use muster_store::remote_session::SessionEnd;
use muster_store::{StoreError, remote_session, tenant};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot};
use tonic::Streaming;

/// Interval of [`RemoteFrame::Alive`] to the client.
const ALIVE: Duration = Duration::from_secs(15);
/// Silence of the client after which it has left. It sends [`RemoteFrame::Alive`] too.
const SILENCE: Duration = Duration::from_secs(60);
/// Interval at which token and tenant are checked again.
const RECHECK: Duration = Duration::from_secs(30);
/// Longest time for the last frame to the client.
const LAST_FRAME_WITHIN: Duration = Duration::from_secs(5);

/// A session whose command has started.
pub struct OpenSession {
    pub app: ApiState,
    pub caller: Caller,
    pub id: RemoteSessionId,
    pub scheduler: SchedulerStream,
}

/// Why the client's direction ended.
#[derive(Debug, thiserror::Error)]
enum ClientError {
    #[error("the client left")]
    Gone(#[from] io::Error),
    #[error("nothing arrived from the client for {} s", SILENCE.as_secs())]
    Silent,
    #[error(transparent)]
    Frame(#[from] FrameError),
}

#[derive(Debug, Default)]
struct Counters {
    input: AtomicU64,
    output: AtomicU64,
}

impl OpenSession {
    /// Runs the session to its end, after the answer 101.
    pub async fn run(self, upgrade: PendingUpgrade) {
        let Ok(stream) = upgrade.stream().await else {
            // The scheduler notices the end of its stream, and records it.
            return;
        };
        let Self {
            app,
            caller,
            id,
            scheduler,
        } = self;
        let (reader, writer) = tokio::io::split(stream);
        let counters = Counters::default();
        let (stop, stopped) = oneshot::channel();
        let mut down = Box::pin(to_client(writer, scheduler.pieces, stopped, &counters));
        let ended = async {
            tokio::select! {
                error = from_client(reader, &scheduler.sender, &counters) => {
                    tracing::debug!(session.id = %id, %error, "the client's side of a session ended");
                    None
                }
                () = app.stopping.cancelled() => Some("the API server stops; the task continues"),
                () = withdrawn(&app, &caller) => Some("the token was revoked, or the tenant's remote sessions are refused now"),
            }
        };
        let broken = tokio::select! {
            broken = &mut down => broken,
            reason = ended => {
                if let Some(reason) = reason {
                    let _ = stop.send(reason);
                    let _ = tokio::time::timeout(LAST_FRAME_WITHIN, down).await;
                }
                None
            }
        };
        if let Some(message) = broken {
            record(&app, &caller, id, failed(&message), &counters).await;
        }
    }
}

fn failed(message: &str) -> RemoteEnd {
    RemoteEnd::Failed {
        message: message.to_owned(),
    }
}

/// Passes frames to the client, up to the last one. Returns a message if the scheduler's stream
/// broke.
async fn to_client(
    mut writer: WriteHalf<UpgradedStream>,
    mut pieces: Streaming<RemotePiece>,
    mut stopped: oneshot::Receiver<&'static str>,
    counters: &Counters,
) -> Option<String> {
    let mut alive = tokio::time::interval(ALIVE);
    alive.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut broken = None;
    let _ = writer.write_all(&RemoteFrame::Started.encode()).await;
    loop {
        let frame = tokio::select! {
            piece = pieces.message() => match piece {
                Ok(Some(RemotePiece { piece: Some(Piece::Frame(frame)) })) => frame,
                other => {
                    let status = other.err();
                    tracing::info!(?status, "the scheduler's stream of a session ended");
                    let message = "the connection to the scheduler broke; the task continues";
                    broken = Some(message.to_owned());
                    RemoteFrame::Ended(failed(message)).encode()
                }
            },
            Ok(reason) = &mut stopped => RemoteFrame::Ended(failed(reason)).encode(),
            _ = alive.tick() => RemoteFrame::Alive.encode(),
        };
        counters
            .output
            .fetch_add(payload(&frame).1, Ordering::Relaxed);
        let written = writer.write_all(&frame).await;
        if is_ended(&frame) || written.is_err() {
            let _ = writer.shutdown().await;
            return broken;
        }
    }
}

/// Passes frames to the scheduler until the client leaves.
async fn from_client(
    mut reader: ReadHalf<UpgradedStream>,
    scheduler: &mpsc::Sender<RemotePiece>,
    counters: &Counters,
) -> ClientError {
    loop {
        let frame = match tokio::time::timeout(SILENCE, read(&mut reader)).await {
            Ok(Ok(frame)) => frame,
            Ok(Err(error)) => return error,
            Err(_) => return ClientError::Silent,
        };
        if frame.as_slice() == RemoteFrame::Alive.encode() {
            continue;
        }
        counters
            .input
            .fetch_add(payload(&frame).0, Ordering::Relaxed);
        let piece = Some(Piece::Frame(frame));
        // Fails only if the scheduler's stream has ended, which the other direction notices.
        if scheduler.send(RemotePiece { piece }).await.is_err() {
            return std::future::pending().await;
        }
    }
}

async fn read(reader: &mut ReadHalf<UpgradedStream>) -> Result<Vec<u8>, ClientError> {
    let mut header = [0; HEADER_BYTES];
    reader.read_exact(&mut header).await?;
    let mut frame = vec![0; HEADER_BYTES + frame_bytes(header)?];
    frame[..HEADER_BYTES].copy_from_slice(&header);
    reader.read_exact(&mut frame[HEADER_BYTES..]).await?;
    Ok(frame)
}

/// Returns once the caller may have no session any more.
async fn withdrawn(app: &ApiState, caller: &Caller) {
    loop {
        tokio::time::sleep(RECHECK).await;
        // An outage of the database ends no session.
        if matches!(may_continue(app, caller).await, Ok(false)) {
            return;
        }
    }
}

async fn may_continue(app: &ApiState, caller: &Caller) -> Result<bool, StoreError> {
    if !caller.is_valid(&app.tokens, &app.pool).await? {
        return Ok(false);
    }
    let mut tx = app.begin(caller).await?;
    let tenant = tenant::get(&mut tx, caller.tenant_id).await?;
    Ok(tenant.is_some_and(|tenant| tenant.interactive))
}

async fn record(
    app: &ApiState,
    caller: &Caller,
    id: RemoteSessionId,
    end: RemoteEnd,
    counters: &Counters,
) {
    let end = SessionEnd {
        end,
        input_bytes: counters.input.load(Ordering::Relaxed),
        output_bytes: counters.output.load(Ordering::Relaxed),
    };
    if let Err(error) = end_in(app, caller, id, &end).await {
        tracing::warn!(error = chain(&error), session.id = %id, "the end of a session is not recorded; the next leader records it");
    }
}

/// Records the end of a session, unless the scheduler has.
///
/// # Errors
/// If the store does not answer.
pub async fn end_in(
    app: &ApiState,
    caller: &Caller,
    id: RemoteSessionId,
    end: &SessionEnd,
) -> Result<(), StoreError> {
    let mut tx = app.begin(caller).await?;
    remote_session::end(&mut tx, id, end, clock::now()).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(())
}
