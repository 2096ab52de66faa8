//! Remote sessions in tasks.

use crate::error::ClientError;
use crate::request::{Client, switch};
use muster_model::id::JobId;
use muster_model::remote::{
    FrameError, HEADER_BYTES, INPUT_WINDOW_BYTES, NewRemoteSession, PROTOCOL, RemoteFrame,
    frame_bytes,
};
use reqwest::Method;
use reqwest::header::{CONNECTION, UPGRADE};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::sync::Semaphore;

/// Interval of [`RemoteFrame::Alive`] to the server. The server ends a session after 60 s of
/// silence.
pub const ALIVE: Duration = Duration::from_secs(15);
/// Silence of the server after which it has left. It sends [`RemoteFrame::Alive`] too.
const SILENCE: Duration = Duration::from_secs(60);

/// Sends frames of a session to the task.
#[derive(Debug)]
pub struct RemoteSender {
    writer: WriteHalf<reqwest::Upgraded>,
    /// Bytes of input that may be sent now.
    window: Arc<Semaphore>,
}

/// Receives frames of the task. Dropping both halves ends the session.
#[derive(Debug)]
pub struct RemoteReceiver {
    reader: ReadHalf<reqwest::Upgraded>,
    window: Arc<Semaphore>,
}

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
        let window = Arc::new(Semaphore::new(INPUT_WINDOW_BYTES));
        let sender = RemoteSender {
            writer,
            window: Arc::clone(&window),
        };
        Ok((sender, RemoteReceiver { reader, window }))
    }
}

impl RemoteSender {
    /// Sends a frame. Input waits until the program has taken enough of the earlier input.
    ///
    /// # Errors
    /// [`RemoteError::Broken`].
    pub async fn send(&mut self, frame: &RemoteFrame) -> Result<(), RemoteError> {
        if let RemoteFrame::Input(data) = frame {
            self.reserve(u32::try_from(data.len()).unwrap_or(u32::MAX))
                .await?;
        }
        self.write(frame).await
    }

    async fn reserve(&mut self, bytes: u32) -> Result<(), RemoteError> {
        loop {
            let window = Arc::clone(&self.window);
            match tokio::time::timeout(ALIVE, window.acquire_many(bytes)).await {
                Ok(Ok(permit)) => {
                    permit.forget();
                    return Ok(());
                }
                Ok(Err(_)) => return Err(io::Error::from(io::ErrorKind::BrokenPipe).into()),
                Err(_) => self.write(&RemoteFrame::Alive).await?,
            }
        }
    }

    async fn write(&mut self, frame: &RemoteFrame) -> Result<(), RemoteError> {
        self.writer.write_all(&frame.encode()).await?;
        Ok(self.writer.flush().await?)
    }
}

impl RemoteReceiver {
    /// Returns the next frame, without those that only this client handles.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub async fn next(&mut self) -> Result<RemoteFrame, RemoteError> {
        loop {
            let read = tokio::time::timeout(SILENCE, self.read()).await;
            match read.map_err(|_| RemoteError::Silent)?? {
                RemoteFrame::Alive => {}
                RemoteFrame::InputTaken(bytes) => {
                    let taken = usize::try_from(bytes).unwrap_or(0);
                    self.window.add_permits(taken.min(INPUT_WINDOW_BYTES));
                }
                frame => return Ok(frame),
            }
        }
    }

    async fn read(&mut self) -> Result<RemoteFrame, RemoteError> {
        let mut header = [0; HEADER_BYTES];
        self.reader.read_exact(&mut header).await?;
        let mut frame = vec![0; HEADER_BYTES + frame_bytes(header)?];
        frame[..HEADER_BYTES].copy_from_slice(&header);
        self.reader.read_exact(&mut frame[HEADER_BYTES..]).await?;
        Ok(RemoteFrame::decode(&frame)?)
    }
}
