//! Measurement of a disk and of task folders.

use crate::clock;
use crate::opener::FolderHandle;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::Path;

/// Number of free inodes below which no file can be created reliably.
const FEW_INODES: u64 = 64;
/// Size of a test file: a quota or a read-only mount does not appear in the figures of the file
/// system.
const PROBE_BYTES: usize = 4_096;

/// Space of a file system for a process without privileges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Disk {
    pub free_bytes: u64,
    pub total_bytes: u64,
}

/// Returns the space of the disk that contains `data`; no free space if no file can be created.
///
/// # Errors
/// If the disk cannot be measured, or if a write fails although there is space.
pub(super) fn disk(data: &Path) -> io::Result<Disk> {
    let found = rustix::fs::statvfs(data)?;
    let total_bytes = found.f_blocks.saturating_mul(found.f_frsize);
    let free_bytes = found.f_bavail.saturating_mul(found.f_frsize);
    // Some file systems report 0 inodes.
    let has_inodes = found.f_files == 0 || found.f_favail >= FEW_INODES;
    if !has_inodes || free_bytes < PROBE_BYTES as u64 {
        let free_bytes = free_bytes.min(PROBE_BYTES as u64 - 1);
        return Ok(Disk {
            free_bytes: if has_inodes { free_bytes } else { 0 },
            total_bytes,
        });
    }
    probe(data)?;
    Ok(Disk {
        free_bytes,
        total_bytes,
    })
}

fn probe(data: &Path) -> io::Result<()> {
    let folder = FolderHandle::at(data)?;
    let name = format!(".probe-{:016x}", clock::random());
    let name = OsStr::new(&name);
    let mut file = folder.create(name, crate::opener::PRIVATE)?;
    let written = file.write_all(&[0; PROBE_BYTES]);
    folder.remove(name)?;
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn disk_without_a_folder_cannot_be_measured() {
        let place = tempfile::tempdir().expect("a folder");
        let found = disk(place.path()).expect("measured");
        assert!(found.free_bytes <= found.total_bytes && found.total_bytes > 0);
        assert_eq!(fs::read_dir(place.path()).expect("there").count(), 0);
        assert!(disk(&place.path().join("none")).is_err());
    }
}
