//! Requests of a task to its node's daemon, with the task's token.

use axum::body::Body;
use axum::http::header::{AUTHORIZATION, HOST};
use axum::http::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use std::io;
use std::thread;
use std::time::Duration;
use tokio::net::TcpStream;

/// Pauses between attempts, in seconds; three minutes together. The daemon may restart meanwhile.
const PAUSES_S: [u64; 8] = [1, 1, 3, 10, 15, 30, 60, 60];

/// Maximum length of an error message of the daemon.
const MAX_MESSAGE_BYTES: usize = 4096;

/// Why the daemon gives nothing.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// No other node has it either.
    #[error("{0}")]
    Refused(String),
    #[error("the node's daemon cannot provide it: {0}")]
    Unavailable(String),
    #[error("the node's daemon does not answer")]
    NoAnswer(#[source] io::Error),
    #[error("the connection to the node's daemon failed")]
    Connection(#[source] hyper::Error),
    #[error("MUSTER_TRACKING_URI and MUSTER_TRACKING_TOKEN are not set")]
    Environment,
}

impl DaemonError {
    /// Whether a repetition on this node may help.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Unavailable(_) | Self::NoAnswer(_) | Self::Connection(_) => true,
            Self::Refused(_) | Self::Environment => false,
        }
    }
}

/// Repeats `attempt` with pauses while its error is transient.
pub(super) fn patiently<T, E>(
    is_transient: impl Fn(&E) -> bool,
    mut attempt: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let mut pauses_s = PAUSES_S.into_iter();
    loop {
        let error = match attempt() {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        match pauses_s.next() {
            Some(pause_s) if is_transient(&error) => thread::sleep(Duration::from_secs(pause_s)),
            _ => return Err(error),
        }
    }
}

/// Runs `work` on this thread. No thread remains when the process becomes the program.
pub(super) fn block_on<T, E: From<DaemonError>>(
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.map_err(DaemonError::NoAnswer)?.block_on(work)
}

/// Requests a path of the daemon and returns the body of the answer.
pub(super) async fn get(path: &str) -> Result<Body, DaemonError> {
    let uri = std::env::var("MUSTER_TRACKING_URI").map_err(|_| DaemonError::Environment)?;
    let token = std::env::var("MUSTER_TRACKING_TOKEN").map_err(|_| DaemonError::Environment)?;
    let address = uri
        .strip_prefix("http://")
        .ok_or(DaemonError::Environment)?;
    let stream = TcpStream::connect(address)
        .await
        .map_err(DaemonError::NoAnswer)?;
    let connected = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = connected.map_err(DaemonError::Connection)?;
    tokio::spawn(connection);
    let request = Request::get(path)
        .header(HOST, address)
        .header(AUTHORIZATION, format!("Bearer {token}"))
        .body(Body::empty())
        .map_err(|_| DaemonError::Environment)?;
    let answer = sender.send_request(request).await;
    let answer = answer.map_err(DaemonError::Connection)?;
    let status = answer.status();
    let content = Body::new(answer.into_body());
    if status == StatusCode::OK {
        return Ok(content);
    }
    let message = axum::body::to_bytes(content, MAX_MESSAGE_BYTES).await;
    let message = message.map(|bytes| shown(&bytes)).unwrap_or_default();
    Err(if status == StatusCode::NOT_FOUND {
        DaemonError::Refused(message)
    } else {
        DaemonError::Unavailable(message)
    })
}

/// Returns the message of an error answer.
fn shown(body: &[u8]) -> String {
    let parsed: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let message = parsed
        .as_ref()
        .and_then(|answer| answer.get("message")?.as_str());
    message.unwrap_or("no message").to_owned()
}
