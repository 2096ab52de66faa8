//! Why the checkpoint with which a program begins is not available.

use super::daemon::DaemonError;
use muster_archive::ArchiveError;
use std::io;

/// Why a checkpoint is not available.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointFetchError {
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    #[error("the daemon's answer is not as expected")]
    Answer(#[source] serde_json::Error),
    #[error("it was transferred with {bytes} bytes of files and the SHA-256 {sha256}")]
    Changed { bytes: u64, sha256: String },
    #[error("cannot write it")]
    Write(#[source] io::Error),
    #[error("cannot unpack it")]
    Unpack(#[source] ArchiveError),
}

impl CheckpointFetchError {
    /// Whether a repetition on this node may help.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Daemon(error) => error.is_transient(),
            Self::Changed { .. } => true,
            // The connection may have ended early.
            Self::Unpack(ArchiveError::Decode(_)) => true,
            Self::Answer(_) | Self::Write(_) | Self::Unpack(_) => false,
        }
    }
}
