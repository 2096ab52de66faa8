//! Remote sessions in tasks.

use crate::error::ClientError;
use crate::request::{Client, switch};
use muster_model::id::JobId;
use muster_model::remote::{
    FrameError, HEADER_BYTES, NewRemoteSession, PROTOCOL, RemoteFrame, frame_bytes,
};
use reqwest::Method;
use reqwest::header::{CONNECTION, UPGRADE};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};

/// Interval of [`RemoteFrame::Alive`] to the server. The server ends a session after 60 s of
/// silence.
pub const ALIVE: Duration = Duration::from_secs(15);
/// Silence of the server after which it has left. It sends [`RemoteFrame::Alive`] too.
const SILENCE: Duration = Duration::from_secs(60);

/// Sends frames of a session to the task.
#[derive(Debug)]
pub struct RemoteSender(WriteHalf<reqwest::Upgraded>);

/// Receives frames of the task. Dropping both halves ends the session.
#[derive(Debug)]
pub struct RemoteReceiver(ReadHalf<reqwest::Upgraded>);

/// Why a session broke.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The connection ended without the last frame.
    #[error("the connection to the server broke")]
    Broken(#[from] io::Error),
    /// Nothing arrived for a minute.
    #[error("the server is silent since {} s", SILENCE.as_secs())]
    Silent,
    /// The bytes are not of this protocol.
    #[error("the server sent a wrong frame")]
    Frame(#[from] FrameError),
}

impl Client {
    /// Opens a session in a running task of the job.
    ///
    /// # Errors
    /// [`ClientError`]; a refusal names the reason.
    pub async fn open_session(
        &self,
        id: JobId,
        session: &NewRemoteSession,
    ) -> Result<(RemoteSender, RemoteReceiver), ClientError> {
        let request = self.request(Method::POST, &["jobs", &id.to_string(), "sessions"]);
        let request = request
            .header(CONNECTION.as_str(), "Upgrade")
            .header(UPGRADE.as_str(), PROTOCOL)
            .json(session);
        let (reader, writer) = tokio::io::split(switch(request).await?);
        Ok((RemoteSender(writer), RemoteReceiver(reader)))
    }
}

impl RemoteSender {
    /// # Errors
    /// [`RemoteError::Broken`].
    pub async fn send(&mut self, frame: &RemoteFrame) -> Result<(), RemoteError> {
        self.0.write_all(&frame.encode()).await?;
        Ok(self.0.flush().await?)
    }
}

impl RemoteReceiver {
    /// Returns the next frame, without [`RemoteFrame::Alive`].
    ///
    /// # Errors
    /// [`RemoteError`].
    pub async fn next(&mut self) -> Result<RemoteFrame, RemoteError> {
        loop {
            let read = tokio::time::timeout(SILENCE, self.read()).await;
            match read.map_err(|_| RemoteError::Silent)?? {
                RemoteFrame::Alive => {}
                frame => return Ok(frame),
            }
        }
    }

    async fn read(&mut self) -> Result<RemoteFrame, RemoteError> {
        let mut header = [0; HEADER_BYTES];
        self.0.read_exact(&mut header).await?;
        let mut frame = vec![0; HEADER_BYTES + frame_bytes(header)?];
        frame[..HEADER_BYTES].copy_from_slice(&header);
        self.0.read_exact(&mut frame[HEADER_BYTES..]).await?;
        Ok(RemoteFrame::decode(&frame)?)
    }
}
