//! Task folder, as the executor creates it.

use muster_model::assignment::{Peers, TaskLaunch};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Why the task folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error("could not read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("could not understand {}", path.display())]
    Parse {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
}

/// Folder from which a task reads its launch and its task set.
#[derive(Debug, Clone)]
pub struct TaskFolder {
    path: PathBuf,
}

impl TaskFolder {
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }

    /// Reads the launch of the task.
    ///
    /// # Errors
    /// [`FolderError`].
    pub fn launch(&self) -> Result<TaskLaunch, FolderError> {
        let path = self.path.join("task.json");
        let text = fs::read(&path).map_err(|source| FolderError::Read {
            path: path.clone(),
            source,
        })?;
        serde_json::from_slice(&text).map_err(|source| FolderError::Parse { path, source })
    }

    /// Reads the job's task set, as far as it is known. `None` if the file does not exist yet or
    /// cannot be read now; the caller then polls again. The executor replaces the file by rename.
    #[must_use]
    pub fn peers(&self) -> Option<Peers> {
        let text = fs::read(self.path.join("peers.json")).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Path of the file to which reports are appended.
    #[must_use]
    pub fn events_path(&self) -> PathBuf {
        self.path.join("events.jsonl")
    }
}
