//! Small JSON files of the executor's own, beside its tasks' folders: either the old or the new one after a crash, never half of one.
//!
//! What a full disk must not stop is rewritten in place ([`rewrite`]): its blocks are allocated when the file is made. A copy-on-write file system
//! gives no such guarantee.

use crate::opener::{self, Folder};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Of what is read whole.
const MOST_BYTES: u64 = 64 << 10;

/// Writes beside `path`, syncs, renames, and syncs the folder: it survives a loss of power.
pub(crate) fn write_durably<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let json = serde_json::to_vec(value)?;
    within(path, |folder, name| folder.replace(name, &json, true))
}

/// Size of a file that is rewritten in place. Within one sector, so a loss of power leaves the old content or the new one.
const FIXED_BYTES: usize = 512;

/// Rewrites a file of fixed size in place, which takes no space of the disk; made if there is none. JSON allows the blanks that fill it.
///
/// A reader may see half of it: the value must show that by itself, or have no reader at the time. `durably`: it survives a loss of power.
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
        match is_new && durably {
            true => folder.sync(),
            false => Ok(()),
        }
    })
}

/// The same for a secret: only this process's user may read it.
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

/// `None` if there is no such file.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match within(path, |folder, name| folder.read(name, MOST_BYTES)) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// For its lock; made if there is none.
pub(crate) fn hold(path: &Path) -> io::Result<File> {
    within(path, |folder, name| folder.hold(name, true))
}

/// For reading.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    within(path, Folder::open)
}

fn within<T>(path: &Path, act: impl FnOnce(&Folder, &OsStr) -> io::Result<T>) -> io::Result<T> {
    let (folder, name) = opener::split(path)?;
    act(&Folder::at(folder)?, name)
}
