//! The task's folder, as the executor lays it out.

use muster_model::assignment::{Peers, TaskLaunch};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Why the folder is of no use.
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

/// Where a task finds what it is told.
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

    /// What to run.
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

    /// The job's task set, as far as it is known. A file that is not there yet, or not readable at the moment, only means to look
    /// again: the executor replaces it by rename.
    #[must_use]
    pub fn peers(&self) -> Option<Peers> {
        let text = fs::read(self.path.join("peers.json")).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// The file that reports are appended to.
    #[must_use]
    pub fn events_path(&self) -> PathBuf {
        self.path.join("events.jsonl")
    }
}
