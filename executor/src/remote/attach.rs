//! The stream of one session to the leading scheduler, on a connection of its own. The node's
//! session has another connection, so a client that reads slowly cannot delay heartbeats.

use super::session_use::SessionUse;
use crate::session::{Endpoints, SessionError};
use muster_model::remote::{FrameError, RemoteFrame};
use muster_proto::MAX_REMOTE_BYTES;
use muster_proto::session::remote_piece::Piece;
use muster_proto::session::remote_sessions_client::RemoteSessionsClient;
use muster_proto::session::{AttachRemote, OpenRemote, RemotePiece};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

/// Receive windows: the memory of a session whose command reads slowly.
const WINDOW_BYTES: u32 = 256 << 10;
/// Frames of the command that wait for the connection.
const QUEUE: usize = 2;
/// Attempts to find the leading scheduler. A service may choose another process each time.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(200);
/// Longest time for the last frames to leave.
const DRAIN: Duration = Duration::from_secs(10);

/// An order and the proofs of the node.
pub struct Attachment<'a> {
    pub endpoints: &'a Endpoints,
    pub node_name: &'a str,
    pub credential: &'a str,
    pub order: &'a OpenRemote,
    pub used: SessionUse,
}

/// Why no stream was opened.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    #[error(transparent)]
    Dial(#[from] SessionError),
    #[error("the scheduler refuses: {}", .0.message())]
    Refused(Box<Status>),
    #[error("no leading scheduler was found")]
    NoLeader,
}

/// Stream of one session.
#[derive(Debug)]
pub struct RemoteStream {
    pub sender: FrameSender,
    pub receiver: FrameReceiver,
}

/// Sends frames to the client. Waits while earlier ones have not left.
#[derive(Debug, Clone)]
pub struct FrameSender(mpsc::Sender<RemotePiece>, SessionUse);

/// Receives frames of the client.
#[derive(Debug)]
pub struct FrameReceiver(Streaming<RemotePiece>, SessionUse);

/// Why no further frame arrives.
#[derive(Debug, thiserror::Error)]
pub enum FrameEnd {
    #[error("the client left")]
    Closed,
    #[error("the stream broke: {}", .0.message())]
    Broken(#[from] Box<Status>),
    #[error(transparent)]
    Frame(#[from] FrameError),
}

impl Attachment<'_> {
    /// # Errors
    /// [`AttachError`].
    pub async fn open(&self) -> Result<RemoteStream, AttachError> {
        for _ in 0..ATTEMPTS {
            match self.try_open().await {
                Ok(stream) => return Ok(stream),
                Err(AttachError::Refused(status)) if status.code() == Code::Unavailable => {}
                Err(AttachError::Dial(SessionError::Dial { .. })) => {}
                Err(error) => return Err(error),
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(AttachError::NoLeader)
    }

    async fn try_open(&self) -> Result<RemoteStream, AttachError> {
        let channel = self.endpoints.dial(WINDOW_BYTES).await?;
        let (sender, messages) = mpsc::channel(QUEUE);
        let attach = AttachRemote {
            session_id: self.order.session_id.clone(),
            key: self.order.key.clone(),
            node_name: self.node_name.to_owned(),
            credential: self.credential.to_owned(),
        };
        let first = RemotePiece {
            piece: Some(Piece::Attach(attach)),
        };
        let _ = sender.send(first).await;
        let mut client =
            RemoteSessionsClient::new(channel).max_decoding_message_size(MAX_REMOTE_BYTES);
        let pieces = client.attach(ReceiverStream::new(messages)).await;
        let pieces = pieces.map_err(|status| AttachError::Refused(Box::new(status)))?;
        Ok(RemoteStream {
            sender: FrameSender(sender, self.used.clone()),
            receiver: FrameReceiver(pieces.into_inner(), self.used.clone()),
        })
    }
}

impl RemoteStream {
    /// Waits until the scheduler has read the last frame and ends the stream.
    pub async fn drained(self) {
        let Self {
            sender,
            mut receiver,
        } = self;
        drop(sender);
        let read = async { while receiver.next().await.is_ok() {} };
        let _ = tokio::time::timeout(DRAIN, read).await;
    }
}

impl FrameSender {
    /// Returns `false` if the stream has ended.
    pub async fn send(&self, frame: RemoteFrame) -> bool {
        self.1.take(&frame);
        let piece = Some(Piece::Frame(frame.encode()));
        self.0.send(RemotePiece { piece }).await.is_ok()
    }

    /// Waits until the stream has ended, also while nothing is received.
    pub async fn closed(&self) {
        self.0.closed().await;
    }
}

impl FrameReceiver {
    /// # Errors
    /// [`FrameEnd`] if the client has left, or sends what is no frame.
    pub async fn next(&mut self) -> Result<RemoteFrame, FrameEnd> {
        let piece = self.0.message().await.map_err(Box::new)?;
        match piece.and_then(|piece| piece.piece) {
            Some(Piece::Frame(frame)) => {
                let frame = RemoteFrame::decode(&frame)?;
                self.1.take(&frame);
                Ok(frame)
            }
            _ => Err(FrameEnd::Closed),
        }
    }
}
