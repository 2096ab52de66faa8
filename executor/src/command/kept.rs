//! Folders that tasks of one tenant share on a node: Python environments and fetched commits.
//!
//! A task makes a folder as its own user. A lock is held exclusively while the folder is made, and
//! shared by each task that uses it, so that it is made once and not removed while it is used.

use super::environment::Paths;
use super::error::CommandError;
use muster_model::assignment::TaskLaunch;
use rustix::fs::{FlockOperation, flock};
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Folder of the kept folders, in the data folder of an executor whose tasks are processes.
pub const FOLDER: &str = "environments";

/// Maximum number of unused folders of a tenant on this node, besides the newest.
const MAX_UNUSED: usize = 8;

/// File that a folder has once it is complete.
const COMPLETE: &str = ".muster-complete";

/// A folder and the lock that keeps it.
pub(super) struct KeptFolder {
    pub path: PathBuf,
    lock: File,
}

impl KeptFolder {
    /// Lets the program of this process inherit the lock.
    pub fn hand_on(&self) -> io::Result<()> {
        let flags = fcntl_getfd(&self.lock)?;
        Ok(fcntl_setfd(&self.lock, flags - FdFlags::CLOEXEC)?)
    }
}

/// Returns the folder of this name. If it does not exist, `make` makes it; what an interrupted
/// `make` has left is removed before.
pub(super) fn ready(
    paths: &Paths,
    launch: &TaskLaunch,
    name: &str,
    make: impl Fn(&Path) -> Result<(), CommandError>,
) -> Result<KeptFolder, CommandError> {
    let place = place(paths, launch);
    fs::create_dir_all(&place).map_err(CommandError::write(&place))?;
    let (path, lock) = (place.join(name), place.join(format!("{name}.lock")));
    let failed = CommandError::write(&lock);
    let lock = File::create(&lock).map_err(failed)?;
    loop {
        flock(&lock, FlockOperation::LockExclusive)
            .map_err(|error| CommandError::write(&path)(error.into()))?;
        if !path.join(COMPLETE).exists() {
            match fs::remove_dir_all(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(CommandError::write(&path)(error));
                }
                _ => {}
            }
            if let Err(error) = make(&path) {
                // What is there may be what filled the disk.
                let _ = fs::remove_dir_all(&path);
                return Err(error);
            }
            let complete = path.join(COMPLETE);
            let marked = File::create(&complete).map(drop);
            marked.map_err(CommandError::write(&complete))?;
            remove_unused(&place, name);
        }
        // Another task may remove the folder between the two locks.
        flock(&lock, FlockOperation::LockShared)
            .map_err(|error| CommandError::write(&path)(error.into()))?;
        if path.join(COMPLETE).exists() {
            return Ok(KeptFolder { path, lock });
        }
    }
}

/// Returns the place of the tenant's folders. Without the node's folder, as in a pod, the task has
/// folders of its own.
fn place(paths: &Paths, launch: &TaskLaunch) -> PathBuf {
    let of_node = paths.task.ancestors().nth(2).map(|data| data.join(FOLDER));
    match of_node.filter(|folder| folder.is_dir()) {
        Some(folder) => folder.join(launch.tenant_id.to_string()),
        None => paths.task.join(FOLDER),
    }
}

/// Removes the oldest folders that no task uses or makes.
fn remove_unused(place: &Path, newest: &str) {
    let Ok(entries) = fs::read_dir(place) else {
        return;
    };
    let mut others: Vec<(SystemTime, String)> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name().into_string().ok()?;
            let is_folder = entry.file_type().ok()?.is_dir() && name != newest;
            is_folder.then_some((entry.metadata().ok()?.modified().ok()?, name))
        })
        .collect();
    others.sort_unstable();
    let surplus = others.len().saturating_sub(MAX_UNUSED);
    for (_, name) in others.into_iter().take(surplus) {
        // The lock file stays: another task may be waiting for it.
        let lock = File::open(place.join(format!("{name}.lock")));
        let is_unused =
            lock.is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok());
        if is_unused && let Err(error) = fs::remove_dir_all(place.join(&name)) {
            super::say(&format!("cannot remove an old folder: {error}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_folders_are_not_removed() {
        let place = tempfile::tempdir().expect("a folder");
        let at = place.path();
        for number in 0..=MAX_UNUSED + 2 {
            let name = format!("{number:02}");
            fs::create_dir(at.join(&name)).expect("made");
            File::create(at.join(format!("{name}.lock"))).expect("made");
            let past = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(number as u64);
            let folder = File::open(at.join(&name)).expect("open");
            folder.set_modified(past).expect("set");
        }
        let used = File::open(at.join("00.lock")).expect("open");
        flock(&used, FlockOperation::LockShared).expect("free");
        remove_unused(at, "10");
        let is_there = |name: &str| at.join(name).exists();
        assert!(is_there("00") && !is_there("01") && is_there("02") && is_there("10"));
    }
}
