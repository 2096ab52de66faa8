//! File names of one task's folder. The modules that write the files define their content.

use crate::task_file::TaskFile;
use muster_model::id::TaskId;
use std::path::{Path, PathBuf};

/// Folder of one task: `<data>/tasks/<task id>/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeTaskFolder(PathBuf);

impl NodeTaskFolder {
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

    /// `TaskLaunch`. Its presence makes the task known to the node.
    #[must_use]
    pub fn task(&self) -> TaskFile {
        TaskFile::large(self.0.join("task.json"))
    }

    /// `Peers`: the job's task set, rewritten when it changes.
    #[must_use]
    pub fn peers(&self) -> TaskFile {
        TaskFile::large(self.0.join("peers.json"))
    }

    /// Size of the present workers of an elastic launcher. The launcher of rank 0 writes it.
    #[must_use]
    pub fn rendezvous(&self) -> TaskFile {
        TaskFile::new(self.0.join("rendezvous.json"))
    }

    /// Number of the slice for which the task is suspended; present only while it is.
    #[must_use]
    pub fn standing(&self) -> TaskFile {
        TaskFile::new(self.0.join(muster_model::assignment::STANDING))
    }

    /// `driver::DriverAnswer`: result of the newest order to the driver helper.
    #[must_use]
    pub fn driver(&self) -> TaskFile {
        TaskFile::new(self.0.join("driver.json"))
    }

    /// Reports of the task, one JSON object per line.
    #[must_use]
    pub fn events(&self) -> TaskFile {
        TaskFile::new(self.0.join("events.jsonl"))
    }

    /// Working folder of a command without `working_dir`; contains its files.
    #[must_use]
    pub fn work(&self) -> PathBuf {
        self.0.join("work")
    }

    /// Folder whose files are kept as artifacts; `MUSTER_OUTPUT_DIR` of a command.
    #[must_use]
    pub fn output(&self) -> PathBuf {
        self.0.join("output")
    }

    /// Positions up to which TensorBoard's event files of the output folder are read.
    #[must_use]
    pub(crate) fn tensorboard(&self) -> TaskFile {
        TaskFile::large(self.0.join("tensorboard.json"))
    }

    /// Checkpoint folder of a command if the cluster keeps checkpoints in a bucket.
    #[must_use]
    pub fn checkpoints(&self) -> PathBuf {
        self.0.join("checkpoints")
    }

    /// Token by which a command reports progress. It permits appends to this task's events.
    #[must_use]
    pub fn token(&self) -> TaskFile {
        TaskFile::new(self.0.join("token"))
    }

    /// `StopNotice`. Its presence means that the command was asked to stop.
    #[must_use]
    pub fn stopping(&self) -> TaskFile {
        TaskFile::new(self.0.join("stopping.json"))
    }

    /// `CheckpointRequest`. Its presence means that the command is asked for a checkpoint before
    /// its stop.
    #[must_use]
    pub fn checkpoint_request(&self) -> TaskFile {
        TaskFile::new(self.0.join("checkpoint-request.json"))
    }

    /// Process ids of shim and task. Its presence means that the task was started, which happens
    /// once.
    #[must_use]
    pub fn shim(&self) -> TaskFile {
        TaskFile::new(self.0.join("shim.json"))
    }

    /// `Outcome`. Its presence means that no process of the task is left.
    #[must_use]
    pub fn exit(&self) -> TaskFile {
        TaskFile::new(self.0.join("exit.json"))
    }

    /// `PodRecord`, for the shim. The executor keeps its own record elsewhere, except for tasks of
    /// the previous release.
    #[must_use]
    pub fn pod(&self) -> TaskFile {
        TaskFile::new(self.0.join("pod.json"))
    }

    /// Environment of a task that its shim cannot inherit. The shim removes it after reading,
    /// because it contains secrets.
    #[must_use]
    pub fn environment(&self) -> TaskFile {
        TaskFile::large(self.0.join("environment.json"))
    }

    /// Acknowledged positions of events, log and end.
    #[must_use]
    pub fn shipped(&self) -> TaskFile {
        TaskFile::new(self.0.join("shipped.json"))
    }

    /// Locked by the shim while it lives, so that a task has at most one shim.
    #[must_use]
    pub fn lock(&self) -> TaskFile {
        TaskFile::new(self.0.join("shim.lock"))
    }

    /// Error output of the shim itself.
    #[must_use]
    pub fn shim_errors(&self) -> TaskFile {
        TaskFile::new(self.0.join("shim.err"))
    }
}
