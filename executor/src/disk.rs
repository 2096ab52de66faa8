//! Small JSON files of the executor's own, beside its tasks' folders: either the old or the new one after a crash, never half of one.

use crate::opener::{self, Folder};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::Path;

/// Of what is read whole.
const MOST_BYTES: u64 = 64 << 10;

/// Writes beside `path`, syncs, renames, and syncs the folder: it survives a loss of power.
pub(crate) fn write_durably<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let json = serde_json::to_vec(value)?;
    within(path, |folder, name| folder.replace(name, &json, true))
}

/// The same without the syncs, for what means nothing after the machine stopped: readers never see half of it, that is all.
pub(crate) fn write_atomically<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let json = serde_json::to_vec(value)?;
    within(path, |folder, name| folder.replace(name, &json, false))
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
