//! Temporary folders that Postgres can use, and copies of data folders.

use crate::programs::{UNPRIVILEGED, runs_as_root};
use rustix::fs::{Gid, Uid};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// `f_type` of a file system in memory, from Linux' `magic.h`.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;
const PREFIX: &str = "muster-testdb-";

/// Folder for one server, with a path short enough for a socket. It is removed on drop. The folder
/// of a killed process is removed by the next call.
pub fn folder() -> TempDir {
    folder_in(&parent())
}

/// Like `folder`, on a disk and not in memory: by convention `/var/tmp` survives a restart of the
/// machine.
///
/// # Panics
/// If all folders for temporary files are in memory.
pub fn folder_on_disk() -> TempDir {
    let candidates = [std::env::temp_dir(), PathBuf::from("/var/tmp")];
    let on_disk = candidates.iter().find(|folder| {
        rustix::fs::statfs(folder.as_path()).is_ok_and(|system| system.f_type != TMPFS_MAGIC)
    });
    folder_in(on_disk.unwrap_or_else(|| {
        panic!("none of {candidates:?} is on a disk; set TMPDIR to a folder on one, which everybody may enter")
    }))
}

fn folder_in(parent: &Path) -> TempDir {
    sweep(parent);
    let folder = tempfile::Builder::new()
        .prefix(&format!("{PREFIX}{}-", std::process::id()))
        .tempdir_in(parent)
        .unwrap_or_else(|error| panic!("make a folder in {}: {error}", parent.display()));
    give(folder.path());
    folder
}

/// Copies a folder completely and gives it to the user of Postgres.
pub fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp")
        .args(["-a", "--reflink=auto", "--"])
        .args([from, to])
        .status()
        .unwrap_or_else(|error| panic!("run cp: {error}"));
    assert!(
        status.success(),
        "cp {} {}: {status}",
        from.display(),
        to.display()
    );
}

/// In memory if there is room: a copied data folder has a thousand small files, which are slow on a
/// busy disk.
fn parent() -> PathBuf {
    const ROOM_BYTES: u64 = 2 << 30;
    let memory = Path::new("/dev/shm");
    match rustix::fs::statvfs(memory) {
        Ok(room) if room.f_bavail.saturating_mul(room.f_frsize) >= ROOM_BYTES => memory.to_owned(),
        _ => std::env::temp_dir(),
    }
}

/// Gives one entry to the user of Postgres.
fn give(path: &Path) {
    if runs_as_root() {
        let (user, group) = (Uid::from_raw(UNPRIVILEGED), Gid::from_raw(UNPRIVILEGED));
        rustix::fs::chown(path, Some(user), Some(group))
            .unwrap_or_else(|error| panic!("chown {}: {error}", path.display()));
    }
}

fn sweep(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX))
            .and_then(|rest| rest.split('-').next());
        let Some(owner) = owner.and_then(|pid| pid.parse::<u32>().ok()) else {
            continue;
        };
        if !Path::new(&format!("/proc/{owner}")).exists() {
            // Its server may be ending at this moment; the next sweep removes the rest.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}
