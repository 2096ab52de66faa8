//! Folders that tasks of one tenant share on a node: Python environments and fetched commits.
//!
//! A task makes a folder as its own user. A lock is held exclusively while the folder is made, and
//! shared by each task that uses it, so that it is made once and not removed while it is used.

use super::environment::Paths;
use super::error::CommandError;
use super::origin::clear;
use crate::clock;
use muster_model::assignment::TaskLaunch;
use rustix::fs::{FlockOperation, flock};
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Folder of the kept folders, in the data folder of an executor whose tasks are processes. Earlier
/// releases kept only Python environments, and an upgrade must find them.
pub const FOLDER: &str = "environments";

/// Maximum number of unused folders of a tenant on this node, of each kind and besides the newest.
const MAX_UNUSED: usize = 8;

/// Begin of the names of fetched commits. The other folders are Python environments.
pub(super) const COMMIT_PREFIX: &str = "git-";

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
    let (path, lock_path) = (place.join(name), place.join(format!("{name}.lock")));
    loop {
        let lock = File::create(&lock_path).map_err(CommandError::write(&lock_path))?;
        flock(&lock, FlockOperation::LockExclusive)
            .map_err(|error| CommandError::write(&path)(error.into()))?;
        if !is_at(&lock, &lock_path) {
            continue;
        }
        if !path.join(COMPLETE).exists() {
            clear(&path).map_err(CommandError::write(&path))?;
            if let Err(error) = make(&path) {
                // The unfinished folder may have filled the disk.
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
        if path.join(COMPLETE).exists() && is_at(&lock, &lock_path) {
            // If this fails, the folder is only removed earlier.
            let _ = File::open(&path).and_then(|folder| folder.set_modified(now()));
            return Ok(KeptFolder { path, lock });
        }
    }
}

/// Whether the file still has this path. Another task may have removed it with its folder.
fn is_at(file: &File, path: &Path) -> bool {
    let own = file.metadata().map(|found| (found.dev(), found.ino()));
    let found = fs::metadata(path).map(|found| (found.dev(), found.ino()));
    matches!((own, found), (Ok(own), Ok(found)) if own == found)
}

fn now() -> SystemTime {
    let since_epoch = u64::try_from(clock::unix_ms()).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::from_millis(since_epoch)
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

/// Removes the oldest folders of the kind of `newest` that no task uses or makes.
fn remove_unused(place: &Path, newest: &str) {
    let Ok(entries) = fs::read_dir(place) else {
        return;
    };
    let mut others: Vec<(SystemTime, String)> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name().into_string().ok()?;
            let is_folder = entry.file_type().ok()?.is_dir() && name != newest;
            let is_of_kind = is_commit(&name) == is_commit(newest);
            (is_folder && is_of_kind).then_some((entry.metadata().ok()?.modified().ok()?, name))
        })
        .collect();
    others.sort_unstable();
    let surplus = others.len().saturating_sub(MAX_UNUSED);
    for (_, name) in others.into_iter().take(surplus) {
        let lock_path = place.join(format!("{name}.lock"));
        let Ok(lock) = File::open(&lock_path) else {
            continue;
        };
        let is_unused = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        if !is_unused || !is_at(&lock, &lock_path) {
            continue;
        }
        match fs::remove_dir_all(place.join(&name)) {
            Err(error) => super::say(&format!("cannot remove an old folder: {error}")),
            // A task that waits for the lock opens the path again. Tasks of earlier releases do
            // not, so the lock files of environments stay.
            Ok(()) if is_commit(&name) => {
                let _ = fs::remove_file(&lock_path);
            }
            Ok(()) => {}
        }
    }
}

fn is_commit(name: &str) -> bool {
    name.starts_with(COMMIT_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes folders with names of two digits behind a prefix, the oldest first.
    fn make_folders(at: &Path, prefix: &str) {
        for number in 0..=MAX_UNUSED + 2 {
            let name = format!("{prefix}{number:02}");
            fs::create_dir(at.join(&name)).expect("made");
            File::create(at.join(format!("{name}.lock"))).expect("made");
            let past = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(number as u64);
            let folder = File::open(at.join(&name)).expect("open");
            folder.set_modified(past).expect("set");
        }
    }

    #[test]
    fn used_folders_are_not_removed() {
        let place = tempfile::tempdir().expect("a folder");
        let at = place.path();
        make_folders(at, "");
        let used = File::open(at.join("00.lock")).expect("open");
        flock(&used, FlockOperation::LockShared).expect("free");
        remove_unused(at, "10");
        let is_there = |name: &str| at.join(name).exists();
        assert!(is_there("00") && !is_there("01") && is_there("02") && is_there("10"));
        assert!(is_there("01.lock"));
    }

    #[test]
    fn commits_and_environments_have_limits_of_their_own() {
        let place = tempfile::tempdir().expect("a folder");
        let at = place.path();
        make_folders(at, "");
        make_folders(at, COMMIT_PREFIX);
        remove_unused(at, "git-10");
        let is_there = |name: &str| at.join(name).exists();
        assert!(!is_there("git-00") && !is_there("git-01") && is_there("git-02"));
        assert!(!is_there("git-01.lock") && is_there("git-02.lock"));
        assert!(is_there("00") && is_there("01"));
    }

    #[test]
    fn removed_lock_file_is_noticed() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("lock");
        let file = File::create(&path).expect("made");
        assert!(is_at(&file, &path));
        fs::remove_file(&path).expect("removed");
        assert!(!is_at(&file, &path));
        let _other = File::create(&path).expect("made");
        assert!(!is_at(&file, &path));
    }
}
