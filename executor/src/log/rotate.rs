//! Writing a task's log in parts of bounded size and number.

use super::{CURRENT, current_offset, full, parts};
use crate::opener::Folder;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotation {
    /// Size at which a part is full; a single write may exceed it.
    pub part_bytes: u64,
    /// The growing one included.
    pub parts: u32,
}

/// The writing end; there is one at a time, as there is one shim.
#[derive(Debug)]
pub struct RotatingLog {
    folder: Folder,
    rotation: Rotation,
    file: File,
    /// Of the growing part.
    offset: u64,
    bytes: u64,
}

impl RotatingLog {
    /// Opens the log of a task folder, at its end if there is one.
    ///
    /// # Errors
    /// If the folder cannot be read or the file not be made.
    pub fn open(folder: &Path, rotation: Rotation) -> io::Result<Self> {
        let folder = Folder::itself(folder)?;
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

    /// Appends, and makes room before that if the part is full.
    ///
    /// # Errors
    /// If the disk is full or gone. What was written of the piece counts; the rest is lost, and offsets stay true.
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
            // Done by a try that found no space for the next part.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            done => done?,
        }
        self.file = self.folder.append(current)?;
        self.offset += self.bytes;
        self.bytes = 0;
        let parts = parts(&self.folder)?;
        // One full part always stays: its name and size say where the growing one begins.
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
