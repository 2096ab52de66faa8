//! The files of one task on disk, by name. Their meaning is in the modules that write them.

use crate::task_file::TaskFile;
use muster_model::id::TaskId;
use std::path::{Path, PathBuf};

/// `<data>/tasks/<task id>/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskFolder(PathBuf);

impl TaskFolder {
    #[must_use]
    pub fn of(tasks: &Path, task: TaskId) -> Self {
        Self(tasks.join(task.to_string()))
    }

    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// `TaskLaunch`; its presence makes the task known to the node.
    #[must_use]
    pub fn task(&self) -> TaskFile {
        TaskFile::large(self.0.join("task.json"))
    }

    /// `Peers`, rewritten as shards begin to listen.
    #[must_use]
    pub fn peers(&self) -> TaskFile {
        TaskFile::large(self.0.join("peers.json"))
    }

    /// The number of the turn in which the task stands still; there while it does.
    #[must_use]
    pub fn standing(&self) -> TaskFile {
        TaskFile::new(self.0.join(muster_model::assignment::STANDING))
    }

    /// `driver::Answer`: what came of the newest order to the driver.
    #[must_use]
    pub fn driver(&self) -> TaskFile {
        TaskFile::new(self.0.join("driver.json"))
    }

    /// What the task reports, a JSON object a line.
    #[must_use]
    pub fn events(&self) -> TaskFile {
        TaskFile::new(self.0.join("events.jsonl"))
    }

    /// Where a command without a folder of its own is started, with its files.
    #[must_use]
    pub fn work(&self) -> PathBuf {
        self.0.join("work")
    }

    /// What a command shows when it reports progress: whoever knows it may write into this task's events.
    #[must_use]
    pub fn token(&self) -> TaskFile {
        TaskFile::new(self.0.join("token"))
    }

    /// `StopNotice`; its presence means that a command was told to stop.
    #[must_use]
    pub fn stopping(&self) -> TaskFile {
        TaskFile::new(self.0.join("stopping.json"))
    }

    /// Process ids of shim and task; its presence means that the task was started, which happens once.
    #[must_use]
    pub fn shim(&self) -> TaskFile {
        TaskFile::new(self.0.join("shim.json"))
    }

    /// `Outcome`; its presence means that no process of the task is left.
    #[must_use]
    pub fn exit(&self) -> TaskFile {
        TaskFile::new(self.0.join("exit.json"))
    }

    /// `PodRecord`, for the shim; what the executor itself goes by it keeps elsewhere, but for tasks of the release before.
    #[must_use]
    pub fn pod(&self) -> TaskFile {
        TaskFile::new(self.0.join("pod.json"))
    }

    /// The environment of a task that its shim cannot inherit; gone once it was read, as secrets are in it.
    #[must_use]
    pub fn environment(&self) -> TaskFile {
        TaskFile::large(self.0.join("environment.json"))
    }

    /// How far the scheduler has acknowledged events, log and end.
    #[must_use]
    pub fn shipped(&self) -> TaskFile {
        TaskFile::new(self.0.join("shipped.json"))
    }

    /// Locked by the shim for its whole life: there is at most one.
    #[must_use]
    pub fn lock(&self) -> TaskFile {
        TaskFile::new(self.0.join("shim.lock"))
    }

    /// What the shim itself has to complain of.
    #[must_use]
    pub fn shim_errors(&self) -> TaskFile {
        TaskFile::new(self.0.join("shim.err"))
    }
}
