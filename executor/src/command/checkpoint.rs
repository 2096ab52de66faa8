//! The registered checkpoint with which a program begins: its own newest one from a bucket, or the
//! checkpoint of another job. The node's daemon asks the scheduler for it. Each attempt asks again,
//! because a checkpoint may be pruned or replaced during the attempt before.

use super::checkpoint_error::CheckpointFetchError;
use super::daemon::{self, DaemonError};
use super::environment::Paths;
use super::error::CommandError;
use super::origin;
use futures::TryStreamExt as _;
use muster_archive::{ArchiveDigest, ArchiveError, unpack_files};
use muster_model::id::JobId;
use muster_model::program_checkpoint::{MAX_PROGRAM_FILES, is_program_path};
use serde::Deserialize;
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;

/// Maximum length of the daemon's description.
const MAX_DESCRIPTION_BYTES: usize = 64 << 10;
/// Number of pieces between the connection and the disk.
const PIECES: usize = 16;

/// How the program begins.
#[derive(Debug, Deserialize)]
pub(super) struct Beginning {
    pub checkpoint: Option<FirstCheckpoint>,
    /// The job is a trial, which may begin from files of another trial that are not registered.
    pub is_trial: bool,
}

/// A registered checkpoint.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct FirstCheckpoint {
    pub job_id: JobId,
    pub path: String,
    pub step: u64,
    sha256: String,
    bytes: u64,
    is_in_bucket: bool,
}

/// Returns how the program begins.
pub(super) fn first() -> Result<Beginning, CommandError> {
    daemon::patiently(CheckpointFetchError::is_transient, ask).map_err(CommandError::Checkpoint)
}

fn ask() -> Result<Beginning, CheckpointFetchError> {
    let mut beginning: Beginning = daemon::block_on(async {
        let body = daemon::get("/muster/v1/checkpoint/first").await?;
        let text = axum::body::to_bytes(body, MAX_DESCRIPTION_BYTES).await;
        let text = text.map_err(|error| DaemonError::NoAnswer(io::Error::other(error)))?;
        serde_json::from_slice(&text).map_err(CheckpointFetchError::Answer)
    })?;
    let found = beginning.checkpoint.take();
    beginning.checkpoint = found.filter(|found| is_program_path(&found.path));
    Ok(beginning)
}

/// Fills the task's own checkpoint folder from the bucket. Each later attempt asks for the newest
/// checkpoint again.
pub(super) fn fetch(paths: &Paths, first: &FirstCheckpoint) -> Result<(), CommandError> {
    if !first.is_in_bucket {
        return Ok(());
    }
    let part = paths.task.join("checkpoints.part");
    let mut next = Some(first.clone());
    let fetched = daemon::patiently(may_be_replaced, || {
        let first = match next.take() {
            Some(first) => first,
            None => ask()?.checkpoint.ok_or_else(not_registered)?,
        };
        origin::clear(&part).map_err(CheckpointFetchError::Write)?;
        fs::create_dir_all(&part).map_err(CheckpointFetchError::Write)?;
        transfer(&part, &first).map(|()| first)
    });
    let first = fetched.map_err(CommandError::Checkpoint)?;
    origin::clear(&paths.checkpoints)
        .and_then(|()| fs::rename(&part, &paths.checkpoints))
        .map_err(CommandError::write(&paths.checkpoints))?;
    let FirstCheckpoint { path, step, .. } = first;
    super::say(&format!("begins with checkpoint {path:?} of step {step}"));
    Ok(())
}

/// Whether a repetition may help. A content that is gone belonged to a pruned checkpoint.
fn may_be_replaced(error: &CheckpointFetchError) -> bool {
    let is_gone = matches!(error, CheckpointFetchError::Daemon(DaemonError::Refused(_)));
    is_gone || error.is_transient()
}

fn not_registered() -> DaemonError {
    DaemonError::Refused("the job has no registered checkpoint any more".to_owned())
}

fn transfer(folder: &Path, first: &FirstCheckpoint) -> Result<(), CheckpointFetchError> {
    let (pieces, received) = mpsc::sync_channel(PIECES);
    let (sha256, unpacked) = thread::scope(|scope| {
        let unpacking = scope.spawn(move || {
            let mut reader = PieceReader::new(received);
            let unpacked = unpack_files(&mut reader, folder, MAX_PROGRAM_FILES);
            // The end of a tar file is padding, which counts for the digest.
            let rest = io::copy(&mut reader, &mut io::sink());
            unpacked.and_then(|bytes| rest.map(|_| bytes).map_err(ArchiveError::Decode))
        });
        let sha256 = daemon::block_on(receive(pieces));
        (sha256, unpacking.join().expect("unpacking does not panic"))
    });
    let sha256 = sha256?;
    let bytes = unpacked.map_err(CheckpointFetchError::Unpack)?;
    if (bytes, sha256.as_str()) == (first.bytes, first.sha256.as_str()) {
        Ok(())
    } else {
        Err(CheckpointFetchError::Changed { bytes, sha256 })
    }
}

/// Passes the content on and returns its SHA-256.
async fn receive(pieces: SyncSender<Vec<u8>>) -> Result<String, CheckpointFetchError> {
    let content = daemon::get("/muster/v1/checkpoint/first/content").await?;
    let mut digest = ArchiveDigest::default();
    let mut content = content.into_data_stream();
    let cut_off = |error| DaemonError::NoAnswer(io::Error::other(error));
    while let Some(piece) = content.try_next().await.map_err(cut_off)? {
        digest.update(&piece);
        if pieces.send(piece.to_vec()).is_err() {
            break;
        }
    }
    Ok(digest.hex())
}

/// Reader of the pieces of a channel.
struct PieceReader {
    pieces: Receiver<Vec<u8>>,
    piece: io::Cursor<Vec<u8>>,
}

impl PieceReader {
    fn new(pieces: Receiver<Vec<u8>>) -> Self {
        Self {
            pieces,
            piece: io::Cursor::default(),
        }
    }
}

impl Read for PieceReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.piece.read(into)?;
            if read > 0 || into.is_empty() {
                return Ok(read);
            }
            match self.pieces.recv() {
                Ok(piece) => self.piece = io::Cursor::new(piece),
                Err(_) => return Ok(0),
            }
        }
    }
}
