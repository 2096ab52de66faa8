//! Files of checkpoints in a folder of this machine. [`muster_opener`] describes what a task may
//! put in place of a file.

use super::manifest::stated_sha256;
use super::reads::BlockingReads;
use super::{MANIFEST, MAX_MANIFEST_BYTES};
use axum::body::Bytes;
use futures::Stream;
use futures::stream;
use muster_opener::{FolderHandle, is_refusal};
use std::fs::File;
use std::io::{self, BufReader, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Bytes per read.
const PIECE_BYTES: u64 = 256 << 10;

/// An open regular file with its length and checksum.
pub struct OpenCheckpointFile {
    pub file: File,
    pub bytes: u64,
    pub sha256: Option<String>,
}

/// Why a file is not served.
#[derive(Debug)]
pub enum OpenError {
    Missing,
    /// A task has put something else in its place.
    Unfit(String),
    Failed(io::Error),
}

/// Opens the file `name` in the folder `path` below `root`, and reads its checksum from the
/// manifest of the same open folder. `path` is relative and plain.
///
/// # Errors
/// [`OpenError`].
pub fn open(root: &Path, path: &Path, name: &str) -> Result<OpenCheckpointFile, OpenError> {
    let mut folder = FolderHandle::at(root).map_err(|error| failed("", error))?;
    for part in path {
        folder = folder.inner(part).map_err(|error| {
            if is_refusal(&error) {
                OpenError::Unfit(format!("{} is a link or no folder", part.display()))
            } else {
                failed("", error)
            }
        })?;
    }
    let file = open_own(&folder, name)?;
    let sha256 = match name {
        MANIFEST => None,
        _ => match open_own(&folder, MANIFEST) {
            Ok(manifest) => read_sha256(manifest, name)?,
            Err(OpenError::Missing) => None,
            Err(error) => return Err(error),
        },
    };
    let bytes = file.metadata().map_err(OpenError::Failed)?.len();
    Ok(OpenCheckpointFile {
        file,
        bytes,
        sha256,
    })
}

/// Opens a file that belongs to the owner of the folder. A hard link could make another user's file
/// appear in the folder. Linux forbids this by default (`fs.protected_hardlinks`); this check does
/// not rely on it.
fn open_own(folder: &FolderHandle, name: &str) -> Result<File, OpenError> {
    let file = folder
        .open(name.as_ref())
        .map_err(|error| failed(name, error))?;
    let found = file.metadata().map_err(OpenError::Failed)?;
    let folder_uid = folder.uid().map_err(OpenError::Failed)?;
    if found.nlink() > 1 && found.uid() != folder_uid {
        return Err(OpenError::Unfit(format!(
            "{name} is a link to a file of another user"
        )));
    }
    Ok(file)
}

fn read_sha256(manifest: File, name: &str) -> Result<Option<String>, OpenError> {
    let bytes = manifest.metadata().map_err(OpenError::Failed)?.len();
    if bytes > MAX_MANIFEST_BYTES {
        return Err(OpenError::Unfit(format!(
            "{MANIFEST} has {bytes} bytes; a manifest has at most {MAX_MANIFEST_BYTES}"
        )));
    }
    // The file may have grown since its length was read.
    let manifest = BufReader::new(manifest.take(MAX_MANIFEST_BYTES));
    Ok(stated_sha256(manifest, name))
}

/// Returns why a file is not served.
pub fn failed(name: &str, error: io::Error) -> OpenError {
    match error.kind() {
        io::ErrorKind::NotFound => OpenError::Missing,
        io::ErrorKind::PermissionDenied if !name.is_empty() => OpenError::Unfit(format!(
            "{name} cannot be read by the api: its permissions do not allow it"
        )),
        // Another process has a lease on the file.
        io::ErrorKind::WouldBlock => OpenError::Unfit(format!("{name} is locked by a lease")),
        _ if is_refusal(&error) => OpenError::Unfit(error.to_string()),
        _ => OpenError::Failed(error),
    }
}

/// Returns the first `bytes` of the file, in pieces. A file that was shortened ends with an error.
pub fn content(
    file: File,
    bytes: u64,
    reads: BlockingReads,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    stream::try_unfold((file, bytes), move |(file, left)| {
        let reads = reads.clone();
        async move {
            if left == 0 {
                return Ok(None);
            }
            let read = reads.run(move || piece(file, left));
            let (file, piece) = read.await.map_err(io::Error::other)??;
            let left = left - piece.len() as u64;
            Ok(Some((piece, (file, left))))
        }
    })
}

fn piece(mut file: File, left: u64) -> io::Result<(File, Bytes)> {
    let most_bytes = usize::try_from(left.min(PIECE_BYTES)).expect("a piece fits the memory");
    let mut piece = vec![0; most_bytes];
    let length = file.read(&mut piece)?;
    if length == 0 {
        let what = "the file became shorter while it was sent";
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
    }
    piece.truncate(length);
    Ok((file, piece.into()))
}

#[cfg(test)]
mod tests;
