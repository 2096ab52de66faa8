//! Removal of a task's folder with everything that its program has left in it, at any depth.
//!
//! The standard library recurses and keeps a folder open per level. A program that nests folders
//! would exhaust the executor's descriptors or its stack.

use crate::clock;
use crate::opener::{self, FolderHandle};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;

/// Maximum number of names in memory.
const AT_A_TIME: usize = 1_000;

/// Removes folders on a thread of its own: a program may have left millions of files, and the node
/// loop must not wait. The next executor removes what is left when this one exits.
pub(crate) fn remove_in_background(folders: Vec<PathBuf>) {
    if folders.is_empty() {
        return;
    }
    let removing = thread::Builder::new().name("removal".to_owned());
    let removing = removing.spawn(move || {
        for folder in &folders {
            if let Err(error) = remove_folder(folder) {
                tracing::warn!(folder = %folder.display(), %error, "the folder of an ended task is not removed");
            }
        }
    });
    if let Err(error) = removing {
        tracing::warn!(%error, "folders of ended tasks are left until the next start");
    }
}

/// Removes a folder. Nested folders are moved to its top level and emptied there. Links are not
/// followed.
///
/// # Errors
/// If something cannot be removed; everything before it is removed.
pub(crate) fn remove_folder(path: &Path) -> io::Result<()> {
    let (above, name) = opener::split(path)?;
    remove_within(&FolderHandle::at(above)?, name)
}

/// Removes a folder within an open folder.
///
/// # Errors
/// As [`remove_folder`].
pub(crate) fn remove_within(above: &FolderHandle, name: &OsStr) -> io::Result<()> {
    if is_gone(above, name)? {
        return Ok(());
    }
    let top = above.inner(name)?;
    loop {
        let names = top.some_names(AT_A_TIME)?;
        if names.is_empty() {
            return above.remove_empty(name);
        }
        for name in names {
            if !is_gone(&top, &name)? {
                empty(&top, &top.inner(&name)?)?;
                top.remove_empty(&name)?;
            }
        }
    }
}

fn empty(top: &FolderHandle, folder: &FolderHandle) -> io::Result<()> {
    loop {
        let names = folder.some_names(AT_A_TIME)?;
        if names.is_empty() {
            return Ok(());
        }
        for name in names {
            if !is_gone(folder, &name)? {
                let up = format!(".up-{:016x}", clock::random());
                folder.move_to(&name, top, up.as_ref())?;
            }
        }
    }
}

/// Removes a file or link; returns `false` for a folder.
fn is_gone(folder: &FolderHandle, name: &OsStr) -> io::Result<bool> {
    match folder.remove(name) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode, OFlags};
    use std::fs;

    /// As a program nests them: each from within its parent, because the whole path would be too
    /// long.
    fn nest(place: &Path, levels: usize) {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let mut at = rustix::fs::openat(CWD, place, flags, Mode::empty()).expect("there");
        for _ in 0..levels {
            rustix::fs::mkdirat(&at, "in", Mode::RWXU).expect("made");
            at = rustix::fs::openat(&at, "in", flags, Mode::empty()).expect("made");
        }
    }

    #[test]
    fn deep_folders_are_removed_and_links_are_not_followed() {
        let place = tempfile::tempdir().expect("a folder");
        let task = place.path().join("task");
        let other = place.path().join("other");
        fs::create_dir_all(task.join("work/a")).expect("made");
        fs::create_dir(&other).expect("made");
        fs::write(other.join("kept"), "").expect("written");
        fs::write(task.join("work/a/file"), "").expect("written");
        std::os::unix::fs::symlink(&other, task.join("work/a/link")).expect("linked");
        std::os::unix::fs::symlink(&other, task.join("link")).expect("linked");
        for number in 0..2_500 {
            fs::write(task.join(format!("work/{number}")), "").expect("written");
        }
        nest(&task, 20_000);
        remove_folder(&task).expect("removed");
        assert!(!task.exists() && other.join("kept").exists());
        let missing = remove_folder(&task).expect_err("it is gone");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        std::os::unix::fs::symlink(&other, &task).expect("linked");
        remove_folder(&task).expect("the link alone");
        assert!(other.join("kept").exists() && task.symlink_metadata().is_err());
    }
}
