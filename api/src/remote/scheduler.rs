//! Connections to the leading scheduler, one for each remote session.

use crate::config::SchedulerAddress;
use muster_model::id::RemoteSessionId;
use muster_proto::MAX_REMOTE_BYTES;
use muster_proto::session::remote_piece::Piece;
use muster_proto::session::remote_sessions_client::RemoteSessionsClient;
use muster_proto::session::{ClaimRemote, RemotePiece};
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};
use tonic::{Code, Status, Streaming};

/// Time limit of a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);
/// Time limit of one claim: the scheduler waits for the node for 10 s.
const CLAIM_WITHIN: Duration = Duration::from_secs(15);
/// Attempts to find the leading scheduler. A service may choose another process each time.
const ATTEMPTS: u32 = 12;
const PAUSE: Duration = Duration::from_millis(250);
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Receive windows: the memory of a session whose client reads slowly.
const WINDOW_BYTES: u32 = 256 << 10;
/// Frames of the client that wait for the connection.
const QUEUE: usize = 2;

/// Why the scheduler's address cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error("scheduler_url is {url:?}; expected such as http://scheduler:7071")]
    Address {
        url: String,
        #[source]
        source: tonic::transport::Error,
    },
    #[error("could not read scheduler_ca_file {}", path.display())]
    Authority {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

/// Why a session could not be claimed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    #[error("{}", .0.message())]
    Refused(Box<Status>),
    #[error("no leading scheduler was found at scheduler_url; try again")]
    NoLeader,
}

/// Stream of one session.
#[derive(Debug)]
pub struct SchedulerStream {
    pub sender: mpsc::Sender<RemotePiece>,
    pub pieces: Streaming<RemotePiece>,
}

/// Connects to the scheduler.
#[derive(Debug, Clone)]
pub struct SchedulerDialer {
    address: SchedulerAddress,
}

impl SchedulerDialer {
    /// Checks the address. Nothing is connected yet.
    ///
    /// # Errors
    /// [`DialError`].
    pub fn new(address: &SchedulerAddress) -> Result<Self, DialError> {
        let dialer = Self {
            address: address.clone(),
        };
        dialer.endpoint()?;
        Ok(dialer)
    }

    /// The authority is read again for each session, because it may be renewed.
    fn endpoint(&self) -> Result<Endpoint, DialError> {
        let SchedulerAddress { url, ca_file } = &self.address;
        let wrong = |source| DialError::Address {
            url: url.clone(),
            source,
        };
        let endpoint = Endpoint::from_shared(url.clone())
            .map_err(wrong)?
            .connect_timeout(CONNECT_WITHIN)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES);
        let Some(path) = ca_file else {
            return Ok(endpoint);
        };
        let pem = std::fs::read(path).map_err(|source| DialError::Authority {
            path: path.clone(),
            source,
        })?;
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem));
        endpoint.tls_config(tls).map_err(wrong)
    }

    /// Claims a stored session at the leading scheduler, and waits for the node of its task.
    ///
    /// # Errors
    /// [`ClaimError`].
    pub async fn claim(
        &self,
        id: RemoteSessionId,
        key: &str,
    ) -> Result<SchedulerStream, ClaimError> {
        for _ in 0..ATTEMPTS {
            match tokio::time::timeout(CLAIM_WITHIN, self.try_claim(id, key)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(status)) if status.code() == Code::Unavailable => {
                    tracing::debug!(%status, "a scheduler does not take the session");
                }
                Ok(Err(status)) => return Err(ClaimError::Refused(Box::new(status))),
                Err(_) => {
                    let late = Status::deadline_exceeded("the scheduler does not answer");
                    return Err(ClaimError::Refused(Box::new(late)));
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(ClaimError::NoLeader)
    }

    async fn try_claim(&self, id: RemoteSessionId, key: &str) -> Result<SchedulerStream, Status> {
        let endpoint = self.endpoint().map_err(|error| {
            let error = muster_model::error_chain::chain(&error);
            tracing::error!(error, "the scheduler's address cannot be used");
            Status::unavailable("the scheduler's address cannot be used")
        })?;
        let channel = endpoint.connect().await;
        let channel = channel.map_err(|error| Status::unavailable(error.to_string()))?;
        let (sender, messages) = mpsc::channel(QUEUE);
        let claim = RemotePiece {
            piece: Some(Piece::Claim(ClaimRemote {
                session_id: id.to_string(),
                key: key.to_owned(),
            })),
        };
        let _ = sender.send(claim).await;
        let mut client =
            RemoteSessionsClient::new(channel).max_decoding_message_size(MAX_REMOTE_BYTES);
        let pieces = client.client(ReceiverStream::new(messages)).await?;
        Ok(SchedulerStream {
            sender,
            pieces: pieces.into_inner(),
        })
    }
}
