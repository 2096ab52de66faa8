//! Writer of a task's log, in parts of limited size and number.

use super::{CURRENT, current_offset, full, parts};
use crate::opener::FolderHandle;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotation {
    /// Size at which a part is full; a single write may exceed it.
    pub part_bytes: u64,
    /// Number of parts, including the growing one.
    pub parts: u32,
}

/// Writer of a log. Only one exists per task, in its shim.
#[derive(Debug)]
pub struct RotatingLog {
    folder: FolderHandle,
    rotation: Rotation,
    file: File,
    /// Offset at which the growing part begins.
    offset: u64,
    bytes: u64,
}

impl RotatingLog {
    /// Opens the log of a task folder, at its end if it exists.
    ///
    /// # Errors
    /// If the folder cannot be read or the file cannot be created.
    pub fn open(folder: &Path, rotation: Rotation) -> io::Result<Self> {
        let folder = FolderHandle::itself(folder)?;
        let offset = current_offset(&parts(&folder)?);
        let file = folder.append(OsStr::new(CURRENT))?;
        let bytes = file.metadata()?.len();
        Ok(Self {
            folder,
            rotation,
            file,
            offset,
            bytes,
        })
    }

    /// Appends a piece of output. If the part is full, a new part is started before.
    ///
    /// # Errors
    /// If the disk is full or fails. The rest of the piece is lost; the offsets remain correct.
    pub fn write(&mut self, mut piece: &[u8]) -> io::Result<()> {
        if self.bytes >= self.rotation.part_bytes {
            self.rotate()?;
        }
        while !piece.is_empty() {
            let written = match self.file.write(piece) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.bytes += written as u64;
            piece = &piece[written..];
        }
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        let current = OsStr::new(CURRENT);
        match self.folder.rename(current, &full(self.offset)) {
            // An earlier attempt has renamed it and found no space for the next part.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            done => done?,
        }
        self.file = self.folder.append(current)?;
        self.offset += self.bytes;
        self.bytes = 0;
        let parts = parts(&self.folder)?;
        // At least one full part stays: its name and size determine where the growing part begins.
        let kept = usize::try_from(self.rotation.parts)
            .unwrap_or(usize::MAX)
            .saturating_sub(1)
            .max(1);
        for old in parts.iter().take(parts.len().saturating_sub(kept)) {
            self.folder.remove(&old.name)?;
        }
        Ok(())
    }
}
