//! The two directions of one session. Small queues and the windows of the transport bound its
//! memory: a party that reads slowly slows the other one down.

use muster_model::remote::{FrameError, MAX_IDLE_HOURS, RemoteEnd, RemoteFrame, payload};
use muster_proto::session as proto;
use muster_proto::session::remote_piece::Piece;
use muster_store::remote_session::SessionEnd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tonic::{Status, Streaming};

pub type PieceSender = mpsc::Sender<Result<proto::RemotePiece, Status>>;

/// Interval at which a session without data is noticed.
const IDLE_CHECK: Duration = Duration::from_secs(60);
/// Checks without data after which a session ends.
const MAX_IDLE_CHECKS: u64 = MAX_IDLE_HOURS * 60;

/// A session with both of its streams.
pub struct Relay {
    pub client: (Streaming<proto::RemotePiece>, PieceSender),
    pub node: (Streaming<proto::RemotePiece>, PieceSender),
    pub expires_in: Duration,
    pub leader: watch::Receiver<bool>,
}

/// Bytes of data so far.
#[derive(Debug, Default)]
struct Counters {
    input: AtomicU64,
    output: AtomicU64,
}

/// Why a direction ended without the last frame.
#[derive(Debug, thiserror::Error)]
enum RelayError {
    #[error("the stream ended")]
    Closed,
    #[error("the stream broke: {}", .0.message())]
    Broken(#[from] Status),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("the stream has a frame that only the other side sends")]
    Direction,
}

impl Relay {
    /// Runs until one side ends the session, and returns how it ended. The streams of both sides
    /// end with it.
    pub async fn run(mut self) -> SessionEnd {
        let counters = Counters::default();
        let end = tokio::select! {
            end = from_node(&mut self.node.0, &self.client.1, &counters) => end.unwrap_or_else(|error| {
                failed(&format!("the connection to the task's node: {error}"))
            }),
            gone = from_client(&mut self.client.0, &self.node.1, &counters) => match gone {
                Err(RelayError::Frame(error)) => failed(&format!("the client sent a wrong frame: {error}")),
                Err(RelayError::Direction) => failed("the client sent a frame that only nodes send"),
                _ => RemoteEnd::ClientGone,
            },
            () = sleep(self.expires_in) => failed("the session has reached its longest duration"),
            () = idle(&counters) => failed(&format!("no data for {MAX_IDLE_HOURS} h")),
            _ = self.leader.wait_for(|leads| !leads) => failed("the leading scheduler changed"),
        };
        if matches!(end, RemoteEnd::Failed { .. }) {
            // Without waiting: the client may not read.
            let frame = RemoteFrame::Ended(end.clone()).encode();
            let _ = self.client.1.try_send(Ok(piece(frame)));
        }
        SessionEnd {
            input_bytes: counters.input.load(Ordering::Relaxed),
            output_bytes: counters.output.load(Ordering::Relaxed),
            end,
        }
    }
}

/// A session that ended before any data.
pub fn ended(end: RemoteEnd) -> SessionEnd {
    SessionEnd {
        end,
        input_bytes: 0,
        output_bytes: 0,
    }
}

fn failed(message: &str) -> RemoteEnd {
    RemoteEnd::Failed {
        message: message.to_owned(),
    }
}

fn piece(frame: Vec<u8>) -> proto::RemotePiece {
    proto::RemotePiece {
        piece: Some(Piece::Frame(frame)),
    }
}

/// Passes the frames of the node on, up to the last one.
async fn from_node(
    node: &mut Streaming<proto::RemotePiece>,
    client: &PieceSender,
    counters: &Counters,
) -> Result<RemoteEnd, RelayError> {
    loop {
        let bytes = next(node).await?;
        let frame = RemoteFrame::decode(&bytes)?;
        if frame.is_from_client() {
            return Err(RelayError::Direction);
        }
        count(&bytes, counters);
        // Fails only if the client has left, which its own direction notices.
        let _ = client.send(Ok(piece(bytes))).await;
        if let RemoteFrame::Ended(end) = frame {
            return Ok(end);
        }
    }
}

/// Passes the frames of the client on. Never returns `Ok`.
async fn from_client(
    client: &mut Streaming<proto::RemotePiece>,
    node: &PieceSender,
    counters: &Counters,
) -> Result<std::convert::Infallible, RelayError> {
    loop {
        let bytes = next(client).await?;
        let frame = RemoteFrame::decode(&bytes)?;
        if !frame.is_from_client() {
            return Err(RelayError::Direction);
        }
        count(&bytes, counters);
        // Fails only if the node's stream has ended, which its own direction notices.
        let _ = node.send(Ok(piece(bytes))).await;
    }
}

async fn next(pieces: &mut Streaming<proto::RemotePiece>) -> Result<Vec<u8>, RelayError> {
    match pieces.message().await?.and_then(|piece| piece.piece) {
        Some(Piece::Frame(frame)) => Ok(frame),
        Some(_) => Err(RelayError::Direction),
        None => Err(RelayError::Closed),
    }
}

fn count(frame: &[u8], counters: &Counters) {
    let (input, output) = payload(frame);
    counters.input.fetch_add(input, Ordering::Relaxed);
    counters.output.fetch_add(output, Ordering::Relaxed);
}

/// Returns once no data has passed for [`MAX_IDLE_HOURS`].
async fn idle(counters: &Counters) {
    let (mut before, mut checks) = ((0, 0), 0);
    while checks < MAX_IDLE_CHECKS {
        sleep(IDLE_CHECK).await;
        let now = (
            counters.input.load(Ordering::Relaxed),
            counters.output.load(Ordering::Relaxed),
        );
        checks = if now == before { checks + 1 } else { 0 };
        before = now;
    }
}
