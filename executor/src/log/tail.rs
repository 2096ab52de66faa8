//! Reading a task's log from an offset while it grows and rotates.

use super::{current, current_offset, parts};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Bytes of the log and where they begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// Later than asked for if what lay before was dropped by rotation.
    pub offset: u64,
    pub bytes: Vec<u8>,
}

/// The reading end. It keeps the part it reads open, so that a rotation does not take it away, and an idle log costs two system calls.
#[derive(Debug, Default)]
pub struct LogTail {
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    file: File,
    offset: u64,
}

impl LogTail {
    /// What lies at `offset`, at most `max_bytes` and not beyond the end of a part; `None` if there is nothing (yet).
    ///
    /// # Errors
    /// If the folder or a part cannot be read.
    pub fn read(
        &mut self,
        folder: &Path,
        offset: u64,
        max_bytes: usize,
    ) -> io::Result<Option<Slice>> {
        if let Some(slice) = self.read_open(offset, max_bytes)? {
            return Ok(Some(slice));
        }
        if self
            .open
            .as_ref()
            .is_some_and(|open| open.offset <= offset && is_growing(folder, &open.file))
        {
            return Ok(None);
        }
        self.open = None;
        let Some((open, offset)) = find(folder, offset)? else {
            return Ok(None);
        };
        self.open = Some(open);
        self.read_open(offset, max_bytes)
    }

    fn read_open(&self, offset: u64, max_bytes: usize) -> io::Result<Option<Slice>> {
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
        Ok(Some(Slice { offset, bytes }))
    }
}

/// Whether this is still the file that the shim appends to.
fn is_growing(folder: &Path, file: &File) -> bool {
    let inode = |metadata: io::Result<fs::Metadata>| metadata.map(|metadata| metadata.ino()).ok();
    inode(file.metadata()) == inode(fs::metadata(current(folder)))
}

/// The part that holds `offset`, or the oldest after it, and the offset to read at. The folder may change while we look: the growing part
/// is opened first and, if a listing made afterwards shows more full parts than one made before, all is done again.
fn find(folder: &Path, offset: u64) -> io::Result<Option<(Open, u64)>> {
    loop {
        let before = match parts(folder) {
            Ok(parts) => parts,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let part = before.iter().find(|part| offset < part.offset + part.bytes);
        let (path, start) = match part {
            Some(part) => (part.path.clone(), part.offset),
            None => (current(folder), current_offset(&before)),
        };
        let file = match File::open(path) {
            Ok(file) => file,
            // Dropped since the listing, or the log does not exist yet, or is between two parts.
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
                Open {
                    file,
                    offset: start,
                },
                offset.max(start),
            )));
        }
    }
}
