//! Number of workers of a job whose launcher restarts its workers within the task.

use crate::folder::NodeTaskFolder;
use crate::task_file::TaskFile;
use muster_model::assignment::{Peers, TaskLaunch};
use std::fs;
use std::time::SystemTime;

/// Size of the job by `peers.json`. Workers of the former size may log for a moment after a change.
#[derive(Debug, Clone)]
pub(super) struct JobSize {
    peers: TaskFile,
    /// Modification time of the file when it was read.
    read_at: Option<SystemTime>,
    revision: u64,
}

impl JobSize {
    /// Returns `None` if the size of the task does not change.
    pub(super) fn of(launch: &TaskLaunch, folder: &NodeTaskFolder) -> Option<Self> {
        let command = launch.spec.command.as_ref()?;
        command.elastic?;
        Some(Self {
            peers: folder.peers(),
            read_at: None,
            revision: launch.revision,
        })
    }

    /// Returns the number of workers if the task set has changed since the last call.
    pub(super) fn changed(&mut self) -> Option<u32> {
        let written_at = fs::symlink_metadata(self.peers.path())
            .ok()?
            .modified()
            .ok();
        if written_at == self.read_at {
            return None;
        }
        let peers: Peers = self.peers.read().ok()??;
        self.read_at = written_at;
        if peers.revision == self.revision {
            return None;
        }
        self.revision = peers.revision;
        u32::try_from(peers.workers.len()).ok()
    }
}
