//! The code of a program: fetched from this node's daemon, checked and unpacked by the task, as the
//! task's own user.

use super::daemon::{self, DaemonError};
use super::environment::Paths;
use super::error::CommandError;
use futures::TryStreamExt as _;
use muster_archive::{ArchiveDigest, ArchiveError};
use muster_model::spec::Code;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

/// Name of the archive in the task's folder until it is unpacked.
const ARCHIVE: &str = "code.tar.zst";

/// Why the code is not available.
#[derive(Debug, thiserror::Error)]
pub enum CodeFetchError {
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    #[error("it was transferred with the SHA-256 {0}")]
    Changed(String),
    #[error("cannot write it into the task's folder")]
    Write(#[source] io::Error),
    #[error("cannot unpack it")]
    Unpack(#[source] ArchiveError),
}

impl CodeFetchError {
    /// Whether a repetition on this node may help.
    fn is_transient(&self) -> bool {
        match self {
            Self::Daemon(error) => error.is_transient(),
            Self::Changed(_) => true,
            Self::Write(_) | Self::Unpack(_) => false,
        }
    }

    /// Whether another node may have it.
    #[must_use]
    pub fn is_of_this_node(&self) -> bool {
        !matches!(
            self,
            Self::Daemon(DaemonError::Refused(_))
                | Self::Unpack(ArchiveError::Entry { .. } | ArchiveError::Bomb)
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
    let unpacked = fetch_and_unpack(&archive, paths, code);
    // Also after a failure, which a full disk could not report otherwise.
    let removed = fs::remove_file(&archive);
    unpacked.map_err(failed)?;
    removed.map_err(CommandError::write(&archive))
}

fn fetch_and_unpack(archive: &Path, paths: &Paths, code: &Code) -> Result<(), CodeFetchError> {
    daemon::patiently(CodeFetchError::is_transient, || {
        fetch(archive, &code.archive)
    })?;
    let file = File::open(archive).map_err(CodeFetchError::Write)?;
    muster_archive::unpack(file, &paths.work).map_err(CodeFetchError::Unpack)
}

fn fetch(archive: &Path, sha256: &str) -> Result<(), CodeFetchError> {
    let found = daemon::block_on(transfer(archive))?;
    if found == sha256 {
        Ok(())
    } else {
        Err(CodeFetchError::Changed(found))
    }
}

/// Writes the archive into a file and returns its SHA-256.
async fn transfer(archive: &Path) -> Result<String, CodeFetchError> {
    let content = daemon::get("/muster/v1/code").await?;
    let mut file = File::create(archive).map_err(CodeFetchError::Write)?;
    let mut digest = ArchiveDigest::default();
    let mut pieces = content.into_data_stream();
    let cut_off = |error| DaemonError::NoAnswer(io::Error::other(error));
    while let Some(piece) = pieces.try_next().await.map_err(cut_off)? {
        digest.update(&piece);
        file.write_all(&piece).map_err(CodeFetchError::Write)?;
    }
    Ok(digest.hex())
}
