//! The code of a program: fetched from this node's daemon, checked and unpacked by the task, as the
//! task's own user.

use super::environment::Paths;
use super::error::CommandError;
use axum::body::Body;
use axum::http::header::{AUTHORIZATION, HOST};
use axum::http::{Request, StatusCode};
use futures::TryStreamExt as _;
use hyper_util::rt::TokioIo;
use muster_archive::{ArchiveDigest, ArchiveError};
use muster_model::spec::Code;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::thread;
use std::time::Duration;
use tokio::net::TcpStream;

/// Name of the archive in the task's folder until it is unpacked.
const ARCHIVE: &str = "code.tar.zst";

/// Pauses between attempts, in seconds; three minutes together. The daemon may restart meanwhile.
const PAUSES_S: [u64; 8] = [1, 1, 3, 10, 15, 30, 60, 60];

/// Maximum length of an error message of the daemon.
const MAX_MESSAGE_BYTES: usize = 4096;

/// Why the code is not available.
#[derive(Debug, thiserror::Error)]
pub enum CodeFetchError {
    /// No other node has it either.
    #[error("{0}")]
    Refused(String),
    #[error("the node's daemon cannot provide it: {0}")]
    Unavailable(String),
    #[error("the node's daemon does not answer")]
    Daemon(#[source] io::Error),
    #[error("the connection to the node's daemon failed")]
    Connection(#[source] hyper::Error),
    #[error("it was transferred with the SHA-256 {0}")]
    Changed(String),
    #[error("cannot write it into the task's folder")]
    Write(#[source] io::Error),
    #[error("cannot unpack it")]
    Unpack(#[source] ArchiveError),
    #[error("MUSTER_TRACKING_URI and MUSTER_TRACKING_TOKEN are not set")]
    Environment,
}

impl CodeFetchError {
    /// Whether a repetition on this node may help.
    fn is_transient(&self) -> bool {
        match self {
            Self::Unavailable(_) | Self::Daemon(_) | Self::Connection(_) | Self::Changed(_) => true,
            Self::Refused(_) | Self::Write(_) | Self::Unpack(_) | Self::Environment => false,
        }
    }

    /// Whether another node may have it.
    #[must_use]
    pub fn is_of_this_node(&self) -> bool {
        !matches!(
            self,
            Self::Refused(_) | Self::Unpack(ArchiveError::Entry { .. } | ArchiveError::Bomb)
        )
    }
}

/// Unpacks the code into the working folder, which exists.
pub(super) fn lay_out(paths: &Paths, code: &Code) -> Result<(), CommandError> {
    let failed = |source| CommandError::Code {
        archive: code.archive.clone(),
        source,
    };
    let archive = paths.task.join(ARCHIVE);
    let mut pauses_s = PAUSES_S.into_iter();
    while let Err(error) = fetch(&archive, &code.archive) {
        match pauses_s.next() {
            Some(pause_s) if error.is_transient() => {
                thread::sleep(Duration::from_secs(pause_s));
            }
            _ => return Err(failed(error)),
        }
    }
    let unpacked = File::open(&archive)
        .map_err(CodeFetchError::Write)
        .and_then(|file| muster_archive::unpack(file, &paths.work).map_err(CodeFetchError::Unpack));
    unpacked.map_err(failed)?;
    fs::remove_file(&archive).map_err(CommandError::write(&archive))
}

fn fetch(archive: &Path, sha256: &str) -> Result<(), CodeFetchError> {
    let uri = std::env::var("MUSTER_TRACKING_URI").map_err(|_| CodeFetchError::Environment)?;
    let token = std::env::var("MUSTER_TRACKING_TOKEN").map_err(|_| CodeFetchError::Environment)?;
    let address = uri
        .strip_prefix("http://")
        .ok_or(CodeFetchError::Environment)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(CodeFetchError::Daemon)?;
    let found = runtime.block_on(transfer(address, &token, archive))?;
    if found == sha256 {
        Ok(())
    } else {
        Err(CodeFetchError::Changed(found))
    }
}

/// Writes the archive into a file and returns its SHA-256.
async fn transfer(address: &str, token: &str, archive: &Path) -> Result<String, CodeFetchError> {
    let stream = TcpStream::connect(address)
        .await
        .map_err(CodeFetchError::Daemon)?;
    let connected = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = connected.map_err(CodeFetchError::Connection)?;
    tokio::spawn(connection);
    let request = Request::get("/muster/v1/code")
        .header(HOST, address)
        .header(AUTHORIZATION, format!("Bearer {token}"))
        .body(Body::empty())
        .map_err(|_| CodeFetchError::Environment)?;
    let answer = sender.send_request(request).await;
    let answer = answer.map_err(CodeFetchError::Connection)?;
    let status = answer.status();
    let content = Body::new(answer.into_body());
    if status != StatusCode::OK {
        let message = axum::body::to_bytes(content, MAX_MESSAGE_BYTES).await;
        let message = message.map(|bytes| shown(&bytes)).unwrap_or_default();
        return Err(if status == StatusCode::NOT_FOUND {
            CodeFetchError::Refused(message)
        } else {
            CodeFetchError::Unavailable(message)
        });
    }
    let mut file = File::create(archive).map_err(CodeFetchError::Write)?;
    let mut digest = ArchiveDigest::default();
    let mut pieces = content.into_data_stream();
    let cut_off = |error| CodeFetchError::Daemon(io::Error::other(error));
    while let Some(piece) = pieces.try_next().await.map_err(cut_off)? {
        digest.update(&piece);
        file.write_all(&piece).map_err(CodeFetchError::Write)?;
    }
    Ok(digest.hex())
}

/// Returns the message of an error answer.
fn shown(body: &[u8]) -> String {
    let parsed: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let message = parsed
        .as_ref()
        .and_then(|answer| answer.get("message")?.as_str());
    message.unwrap_or("no message").to_owned()
}
