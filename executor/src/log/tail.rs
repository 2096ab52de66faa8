//! Reader of a task's log from an offset, while the log grows and rotates.

use super::{CURRENT, LogPart, current_offset, parts};
use crate::opener::FolderHandle;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Attempts to find a part while parts change. A shim starts new parts a few times a second at
/// most.
const TRIES: u32 = 16;

/// Bytes of the log and their offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogTailSlice {
    /// Larger than the requested offset if rotation has removed the bytes before.
    pub offset: u64,
    pub bytes: Vec<u8>,
}

/// Reader of a log. It keeps the current part open, so that rotation does not remove it. An idle
/// log costs a few system calls.
#[derive(Debug, Default)]
pub struct LogTail {
    open: Option<OpenLogPart>,
}

#[derive(Debug)]
struct OpenLogPart {
    file: File,
    offset: u64,
}

impl LogTail {
    /// Returns bytes at `offset`, at most `max_bytes` and from one part; `None` if there are none
    /// yet.
    ///
    /// # Errors
    /// If the folder or a part cannot be read.
    pub fn read(
        &mut self,
        folder: &Path,
        offset: u64,
        max_bytes: usize,
    ) -> io::Result<Option<LogTailSlice>> {
        if let Some(slice) = self.read_open(offset, max_bytes)? {
            return Ok(Some(slice));
        }
        let folder = match FolderHandle::itself(folder) {
            Ok(folder) => folder,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if self
            .open
            .as_ref()
            .is_some_and(|open| open.offset <= offset && is_growing(&folder, &open.file))
        {
            return Ok(None);
        }
        self.open = None;
        let Some((open, offset)) = find(&folder, offset)? else {
            return Ok(None);
        };
        self.open = Some(open);
        self.read_open(offset, max_bytes)
    }

    fn read_open(&self, offset: u64, max_bytes: usize) -> io::Result<Option<LogTailSlice>> {
        let Some(open) = self.open.as_ref().filter(|open| open.offset <= offset) else {
            return Ok(None);
        };
        let position = offset - open.offset;
        let rest = open.file.metadata()?.len().saturating_sub(position);
        let count = usize::try_from(rest).unwrap_or(usize::MAX).min(max_bytes);
        if count == 0 {
            return Ok(None);
        }
        let mut bytes = vec![0; count];
        open.file.read_exact_at(&mut bytes, position)?;
        Ok(Some(LogTailSlice { offset, bytes }))
    }
}

/// Whether this is still the file to which the shim appends.
fn is_growing(folder: &FolderHandle, file: &File) -> bool {
    let [open, current] = [file.metadata(), folder.metadata(OsStr::new(CURRENT))]
        .map(|found| found.map(|found| (found.dev(), found.ino())).ok());
    open == current
}

/// Returns the part that contains `offset`, or the oldest part after it, and the offset to read at.
///
/// The folder may change meanwhile. So the growing part is opened first. If a later listing shows
/// more full parts than an earlier one, everything is repeated.
fn find(folder: &FolderHandle, offset: u64) -> io::Result<Option<(OpenLogPart, u64)>> {
    for _ in 0..TRIES {
        let before = parts(folder)?;
        let part = before.iter().find(|part| offset < part.end());
        let start = part.map_or_else(|| current_offset(&before), |part| part.offset);
        let name = part.map_or(OsStr::new(CURRENT), |part: &LogPart| part.name.as_os_str());
        let file = match folder.open(name) {
            Ok(file) => file,
            // Removed since the listing; or the log does not exist yet; or a rotation is in
            // progress.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if parts(folder)? == before {
                    return Ok(None);
                }
                continue;
            }
            Err(error) => return Err(error),
        };
        if part.is_some() || parts(folder)? == before {
            return Ok(Some((
                OpenLogPart {
                    file,
                    offset: start,
                },
                offset.max(start),
            )));
        }
    }
    Err(io::Error::new(
        io::ErrorKind::ResourceBusy,
        format!("the parts of its log changed in each of {TRIES} looks"),
    ))
}
