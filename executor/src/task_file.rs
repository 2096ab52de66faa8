//! A file in a task's folder. Every access uses safe file access ([`muster_opener`]); the type
//! prevents an open by path.

use crate::opener::{self, FolderHandle, ORDINARY, PRIVATE, Reserved};
use muster_proto::MAX_MESSAGE_BYTES;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

/// Maximum size of a file that is read as a whole.
const FEW_BYTES: u64 = 64 << 10;

/// Path of the file and the maximum size for reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskFile {
    path: PathBuf,
    most_bytes: u64,
}

impl TaskFile {
    /// A file that is either short or never read as a whole.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            most_bytes: FEW_BYTES,
        }
    }

    /// A file with content of the scheduler.
    #[must_use]
    pub fn large(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            most_bytes: MAX_MESSAGE_BYTES as u64,
        }
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file for reading.
    ///
    /// # Errors
    /// If it is absent or not a regular file.
    pub(crate) fn open(&self) -> io::Result<File> {
        self.within(FolderHandle::open)
    }

    pub(crate) fn append(&self) -> io::Result<File> {
        self.within(FolderHandle::append)
    }

    /// Replaces the file by an empty one.
    pub(crate) fn create(&self) -> io::Result<File> {
        self.within(|folder, name| folder.create(name, ORDINARY))
    }

    /// Opens the file for its lock; creates it if it is absent. With `is_for_writing` its close
    /// notifies watchers of the folder.
    pub(crate) fn hold(&self, is_for_writing: bool) -> io::Result<File> {
        self.within(|folder, name| folder.hold(name, is_for_writing))
    }

    /// Reads the file as JSON; `None` if it does not exist.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> io::Result<Option<T>> {
        match self.within(|folder, name| folder.read(name, self.most_bytes)) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn text(&self) -> io::Result<String> {
        let bytes = self.within(|folder, name| folder.read(name, self.most_bytes))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Replaces the content; it survives a loss of power.
    pub(crate) fn write_durably<T: Serialize>(&self, value: &T) -> io::Result<()> {
        let json = serde_json::to_vec(value)?;
        self.within(|folder, name| folder.replace(name, &json, true))
    }

    /// Reserves the space that [`Self::write_reserved`] uses later.
    pub(crate) fn reserve(&self, bytes: usize) -> io::Result<Reserved> {
        self.within(|folder, name| folder.reserve(name, bytes))
    }

    /// Releases reserved space.
    pub(crate) fn give_back(&self, reserved: Reserved) {
        let _ = self.within(|folder, _| reserved.remove(folder));
    }

    /// Does the same as [`Self::write_durably`], also on a full disk.
    pub(crate) fn write_reserved<T: Serialize>(
        &self,
        reserved: Reserved,
        value: &T,
    ) -> io::Result<()> {
        let json = serde_json::to_vec(value)?;
        self.within(|folder, _| reserved.put(folder, &json))
    }

    /// Replaces the content. Readers never see a partial file, but it may not survive a loss of
    /// power.
    pub(crate) fn write_atomically<T: Serialize>(&self, value: &T) -> io::Result<()> {
        let json = serde_json::to_vec(value)?;
        self.within(|folder, name| folder.replace(name, &json, false))
    }

    /// Writes a text that only the owner may read.
    pub(crate) fn write_private(&self, text: &str) -> io::Result<()> {
        let mut file = self.within(|folder, name| folder.create(name, PRIVATE))?;
        io::Write::write_all(&mut file, text.as_bytes())
    }

    /// Returns `None` if the file cannot be opened or is not a regular file.
    #[must_use]
    pub(crate) fn metadata(&self) -> Option<Metadata> {
        let metadata = self.within(FolderHandle::metadata).ok()?;
        metadata.is_file().then_some(metadata)
    }

    /// Whether a regular file of this name exists.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.metadata().is_some()
    }

    /// Removes the file, if it exists.
    pub(crate) fn remove(&self) -> io::Result<()> {
        match self.within(FolderHandle::remove) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }

    fn within<T>(&self, act: impl FnOnce(&FolderHandle, &OsStr) -> io::Result<T>) -> io::Result<T> {
        let (folder, name) = opener::split(&self.path)?;
        act(&FolderHandle::itself(folder)?, name)
    }
}

impl From<TaskFile> for PathBuf {
    fn from(file: TaskFile) -> Self {
        file.path
    }
}
