//! Measurement of a disk and of task folders.

use crate::clock;
use crate::opener::Folder;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Maximum number of counted names in a task's folder. The result is then a lower bound.
const MOST_NAMES: usize = 100_000;
/// Maximum depth of counted folders.
const MOST_LEVELS: usize = 32;
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
    let folder = Folder::at(data)?;
    let name = format!(".probe-{:016x}", clock::random());
    let name = OsStr::new(&name);
    let mut file = folder.create(name, crate::opener::PRIVATE)?;
    let written = file.write_all(&[0; PROBE_BYTES]);
    folder.remove(name)?;
    written
}

/// Returns the disk space of a folder with its content, in bytes. Links are not followed, and
/// unreadable parts count as 0.
pub(crate) fn bytes_within(folder: &Path) -> u64 {
    let mut names_left = MOST_NAMES;
    Folder::itself(folder).map_or(0, |folder| walk(&folder, MOST_LEVELS, &mut names_left))
}

fn walk(folder: &Folder, levels_left: usize, names_left: &mut usize) -> u64 {
    let names = folder.some_names(*names_left).unwrap_or_default();
    let mut bytes = 0_u64;
    for name in names {
        if *names_left == 0 {
            break;
        }
        *names_left -= 1;
        let Ok(found) = folder.metadata(&name) else {
            continue;
        };
        bytes = bytes.saturating_add(found.blocks().saturating_mul(512));
        if found.is_dir()
            && levels_left > 0
            && let Ok(inner) = folder.inner(&name)
        {
            bytes = bytes.saturating_add(walk(&inner, levels_left - 1, names_left));
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn folder_counts_what_lies_below_it_and_follows_no_link() {
        let place = tempfile::tempdir().expect("a folder");
        let task = place.path().join("task");
        fs::create_dir_all(task.join("work/deep")).expect("made");
        fs::write(task.join("log"), vec![1; 100_000]).expect("written");
        fs::write(task.join("work/deep/file"), vec![1; 300_000]).expect("written");
        fs::write(place.path().join("other"), vec![1; 5_000_000]).expect("written");
        std::os::unix::fs::symlink(place.path(), task.join("link")).expect("linked");
        let sparse = fs::File::create(task.join("sparse")).expect("made");
        sparse.set_len(1 << 40).expect("sparse");
        let bytes = bytes_within(&task);
        assert!((400_000..1_000_000).contains(&bytes), "{bytes}");
        assert_eq!(bytes_within(&place.path().join("none")), 0);
    }

    #[test]
    fn disk_without_a_folder_cannot_be_measured() {
        let place = tempfile::tempdir().expect("a folder");
        let found = disk(place.path()).expect("measured");
        assert!(found.free_bytes <= found.total_bytes && found.total_bytes > 0);
        assert_eq!(fs::read_dir(place.path()).expect("there").count(), 0);
        assert!(disk(&place.path().join("none")).is_err());
    }
}
