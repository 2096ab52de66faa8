//! Small JSON files of the executor itself, outside the task folders. After a crash a file has
//! either its old or its new content.
//!
//! Files that must stay writable on a full disk are rewritten in place ([`rewrite`]): their blocks
//! are allocated when the file is created. A copy-on-write file system gives no such guarantee.

use crate::opener::{self, FolderHandle};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Maximum size of a file that is read as a whole.
const MOST_BYTES: u64 = 64 << 10;

/// Writes to a temporary file, syncs, renames, and syncs the folder: the content survives a loss of
/// power.
pub(crate) fn write_durably<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let json = serde_json::to_vec(value)?;
    within(path, |folder, name| folder.replace(name, &json, true))
}

/// Size of a file that is rewritten in place. It fits into one sector, so a loss of power leaves
/// either the old or the new content.
const FIXED_BYTES: usize = 512;

/// Rewrites a file of fixed size in place, which allocates no disk space; creates it if it is
/// absent. Blanks fill the rest, which JSON allows.
///
/// A reader may see a partial write: the value must reveal it, or the file must have no reader at
/// that time. With `durably` the content survives a loss of power.
pub(crate) fn rewrite<T: Serialize>(path: &Path, value: &T, durably: bool) -> io::Result<()> {
    let mut content = serde_json::to_vec(value)?;
    if content.len() > FIXED_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("{} bytes of at most {FIXED_BYTES}", content.len()),
        ));
    }
    content.resize(FIXED_BYTES, b' ');
    within(path, |folder, name| {
        let file = folder.hold(name, true)?;
        let is_new = file.metadata()?.len() == 0;
        file.write_all_at(&content, 0)?;
        if durably {
            file.sync_data()?;
        }
        if is_new && durably {
            folder.sync()
        } else {
            Ok(())
        }
    })
}

/// Writes durably with permissions for this process's user only, for secrets.
pub(crate) fn write_privately<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let json = serde_json::to_vec(value)?;
    within(path, |folder, name| {
        let mut temporary = OsString::from(".");
        temporary.push(name);
        let mut file = folder.create(&temporary, opener::PRIVATE)?;
        file.write_all(&json)?;
        file.sync_all()?;
        folder.rename(&temporary, name)?;
        folder.sync()
    })
}

/// Returns `None` if the file does not exist.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match within(path, |folder, name| folder.read(name, MOST_BYTES)) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens a file for its lock; creates it if it is absent.
pub(crate) fn hold(path: &Path) -> io::Result<File> {
    within(path, |folder, name| folder.hold(name, true))
}

/// Opens a file for reading.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    within(path, FolderHandle::open)
}

fn within<T>(
    path: &Path,
    act: impl FnOnce(&FolderHandle, &OsStr) -> io::Result<T>,
) -> io::Result<T> {
    let (folder, name) = opener::split(path)?;
    act(&FolderHandle::at(folder)?, name)
}
