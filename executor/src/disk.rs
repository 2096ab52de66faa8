//! Small JSON files that are either the old or the new one after a crash, never half of one.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Writes beside `path`, syncs, renames, and syncs the folder: it survives a loss of power.
pub(crate) fn write_durably<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let temporary = temporary(path);
    let mut file = File::create(&temporary)?;
    file.write_all(&serde_json::to_vec(value)?)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    sync_folder(path)
}

/// The same without the syncs, for what means nothing after the machine stopped: readers never see half of it, that is all.
pub(crate) fn write_atomically<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let temporary = temporary(path);
    fs::write(&temporary, serde_json::to_vec(value)?)?;
    fs::rename(&temporary, path)
}

/// A text that nobody but the owner may read.
pub(crate) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text.as_bytes())
}

/// `None` if there is no such file.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    path.parent()
        .map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// The process id is in the name because daemon and shim may write the same file.
fn temporary(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.tmp-{}", std::process::id()))
}
