//! A file in a task's folder. It is no path that could be opened by mistake: whatever is done with it goes through [`muster_opener`].

use crate::opener::{self, Folder, ORDINARY, PRIVATE, Reserved};
use muster_proto::MAX_MESSAGE_BYTES;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

/// Of what is read whole.
const FEW_BYTES: u64 = 64 << 10;

/// Its name, and how much of it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskFile {
    path: PathBuf,
    most_bytes: u64,
}

impl TaskFile {
    /// One that is either short or never read whole.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            most_bytes: FEW_BYTES,
        }
    }

    /// One that holds what the scheduler has sent.
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

    /// For reading.
    ///
    /// # Errors
    /// If it is no regular file, or not there.
    pub(crate) fn open(&self) -> io::Result<File> {
        self.within(Folder::open)
    }

    pub(crate) fn append(&self) -> io::Result<File> {
        self.within(Folder::append)
    }

    /// Made anew.
    pub(crate) fn create(&self) -> io::Result<File> {
        self.within(|folder, name| folder.create(name, ORDINARY))
    }

    /// For its lock; made if there is none. `is_for_writing`: whoever watches the folder hears of its end.
    pub(crate) fn hold(&self, is_for_writing: bool) -> io::Result<File> {
        self.within(|folder, name| folder.hold(name, is_for_writing))
    }

    /// What its JSON says. `None` if there is no such file.
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

    /// It survives a loss of power.
    pub(crate) fn write_durably<T: Serialize>(&self, value: &T) -> io::Result<()> {
        let json = serde_json::to_vec(value)?;
        self.within(|folder, name| folder.replace(name, &json, true))
    }

    /// Space for what [`Self::write_reserved`] writes later.
    pub(crate) fn reserve(&self, bytes: usize) -> io::Result<Reserved> {
        self.within(|folder, name| folder.reserve(name, bytes))
    }

    /// Gives up what was reserved.
    pub(crate) fn give_back(&self, reserved: Reserved) {
        let _ = self.within(|folder, _| reserved.remove(folder));
    }

    /// As [`Self::write_durably`], on a full disk too.
    pub(crate) fn write_reserved<T: Serialize>(
        &self,
        reserved: Reserved,
        value: &T,
    ) -> io::Result<()> {
        let json = serde_json::to_vec(value)?;
        self.within(|folder, _| reserved.put(folder, &json))
    }

    /// Readers never see half of it, that is all.
    pub(crate) fn write_atomically<T: Serialize>(&self, value: &T) -> io::Result<()> {
        let json = serde_json::to_vec(value)?;
        self.within(|folder, name| folder.replace(name, &json, false))
    }

    /// A text that nobody but the owner may read.
    pub(crate) fn write_private(&self, text: &str) -> io::Result<()> {
        let mut file = self.within(|folder, name| folder.create(name, PRIVATE))?;
        io::Write::write_all(&mut file, text.as_bytes())
    }

    /// `None` if there is none that could be opened.
    #[must_use]
    pub(crate) fn metadata(&self) -> Option<Metadata> {
        let metadata = self.within(Folder::metadata).ok()?;
        metadata.is_file().then_some(metadata)
    }

    /// Whatever else bears its name is not it.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.metadata().is_some()
    }

    /// Nothing to do if there is none.
    pub(crate) fn remove(&self) -> io::Result<()> {
        match self.within(Folder::remove) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }

    fn within<T>(&self, act: impl FnOnce(&Folder, &OsStr) -> io::Result<T>) -> io::Result<T> {
        let (folder, name) = opener::split(&self.path)?;
        act(&Folder::itself(folder)?, name)
    }
}

impl From<TaskFile> for PathBuf {
    fn from(file: TaskFile) -> Self {
        file.path
    }
}
