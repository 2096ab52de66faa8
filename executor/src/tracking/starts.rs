//! Starts of the worker processes of a launcher that restarts them within its task.

use crate::folder::NodeTaskFolder;
use crate::task_file::TaskFile;
use muster_model::assignment::TaskLaunch;
use serde::Deserialize;
use std::fs;
use std::time::SystemTime;

/// Maximum number of workers of a job.
const MOST_WORKERS: u32 = 1_024;

/// Newest start, from the file that the launcher of rank 0 writes before each start. The former
/// workers have ended then.
#[derive(Debug, Clone)]
pub(super) struct WorkerStarts {
    file: TaskFile,
    /// Modification time of the file when it was read.
    read_at: Option<SystemTime>,
    newest: WorkerStart,
}

/// Content of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
struct WorkerStart {
    revision: u64,
    /// Number of the start within the task set, from 0.
    attempt: u32,
    workers: u32,
}

impl WorkerStarts {
    /// Returns `None` if the launcher does not restart its workers.
    pub(super) fn of(launch: &TaskLaunch, folder: &NodeTaskFolder) -> Option<Self> {
        let command = launch.spec.command.as_ref()?;
        command.elastic?;
        Some(Self {
            file: folder.rendezvous(),
            read_at: None,
            newest: WorkerStart {
                revision: launch.revision,
                attempt: 0,
                workers: launch.workers,
            },
        })
    }

    /// Returns the number of workers if they were started again since the last call.
    pub(super) fn newest(&mut self) -> Option<u32> {
        let written_at = fs::symlink_metadata(self.file.path()).ok()?.modified().ok();
        if written_at == self.read_at {
            return None;
        }
        // The program can write anything into it.
        let read: WorkerStart = self.file.read().ok()??;
        self.read_at = written_at;
        let is_new = read != self.newest && (1..=MOST_WORKERS).contains(&read.workers);
        is_new.then(|| {
            self.newest = read;
            read.workers
        })
    }
}
